"""What every GPU says of itself, asked through NVML in a child process that may hang or die alone.

Which question fills which field: :mod:`.questions`. The document of one GPU: :mod:`.device`. The child that
asks: :mod:`.child`; the parent that keeps its deadlines: :mod:`.parent`; the join with what the host knows:
:mod:`.document`. Samples over time: :mod:`.sampler`.
"""
