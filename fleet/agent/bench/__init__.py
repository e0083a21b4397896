"""Benchmarks of a host's GPUs: :mod:`.torch_side` measures beside torch, the rest runs it and keeps the record."""
