"""Plays plans over many hosts: concurrency, batches, failure budget, cancel, reboot, resume.

A run flows ``engine.Engine.play`` (all hosts) -> ``host_run.HostRun.run`` (one host) ->
``segment.SegmentPlayer.apply`` (one plan on one host) -> the agent. Everything that happens is
published on the ``bus``; this package prints nothing.
"""
