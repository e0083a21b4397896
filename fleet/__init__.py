"""fleet: GPU hosts from a YAML list to a pinned, proven PyTorch-CUDA image, over plain SSH.

This file is also shipped to every host with the agent, so it imports nothing.
Start reading at :mod:`fleet.cli` (commands), :mod:`fleet.run` (how a run flows) or
:mod:`fleet.agent` (what happens on a host).
"""

__version__ = "0.1.0"
