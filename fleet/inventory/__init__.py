"""YAML files to hosts and variables, each value with the file and line it came from.

Start at :func:`fleet.inventory.load.load_inventory`; :mod:`fleet.inventory.connection` says how a host is
reached.
"""

from fleet.inventory.load import load_inventory
from fleet.inventory.model import Group, Host, Inventory, LoadOptions, Origin

__all__ = ["Group", "Host", "Inventory", "LoadOptions", "Origin", "load_inventory"]
