"""The lab: real hosts on one machine, containers that run systemd, sshd, apt and an engine of their own.

Start at :class:`fleet.lab.lab.Lab` (``up``, ``down``, ``status``). What a lab consists of is read from
its inventory (:mod:`fleet.lab.definition`); how images are made is in :mod:`fleet.lab.images`; what
tests do to hosts is in :mod:`fleet.lab.faults` and what they compare in :mod:`fleet.lab.snapshot`.

Product code knows one thing of all this: the marker file ``/etc/fleet-lab.json`` on a host.
"""
