"""What runs beside torch, in the pinned image or in the host's own Python: it measures and prints.

``python -m fleet.agent.bench.torch_side REQUEST`` (:mod:`.__main__`) runs one group of tests
(:mod:`.plan`) and prints one line per result as it comes (:mod:`.results`). Standard library and torch
only, Python 3.9 syntax, torch 2.0 and newer. Where the numbers come from is behind one seam: :mod:`.backend`.
"""
