"""Decides what a rolling upgrade does next; does nothing itself.

:class:`fleet.rollout.rollout.Rollout` is the door: given a strategy, hosts, a clock and somewhere to keep every
decision, it hands out actions and takes their results. ``states.py`` is the life of one host, ``strategy.py`` the
operator's limits, ``plan.py`` what is shown before anything moves. Nothing here reaches a host, a database or the
screen. Why it is so: docs/decisions/0006-rollouts.md.
"""
