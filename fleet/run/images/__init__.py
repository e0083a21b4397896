"""Images that are not in the catalogue, looked into: :func:`inspect` by name, :class:`Inspector` for an audit."""

from fleet.run.images.inspection import Inspector, inspect

__all__ = ["Inspector", "inspect"]
