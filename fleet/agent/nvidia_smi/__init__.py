"""What nvidia-smi prints, read into the documents of :mod:`fleet.agent.gpu_probe`: the way where NVML is not.

How a call of it failed: :mod:`.states`. Its formats: :mod:`.xml` (``-q -x``), :mod:`.text` (``-q``),
:mod:`.csv` (``--query-…``), :mod:`.listing` (``-L``), :mod:`.nvlink` (``nvlink -s``) and, where nothing else
is to be had, :mod:`.table`. Which name of each format fills which field: :mod:`.fields`, one table for all;
values and the words in their place: :mod:`.values`; a GPU made of them: :mod:`.fill`. Asking a host:
:mod:`.fallback`.
"""
