"""Will the engine's networks take addresses that the host or its operators need?

Docker chooses subnets in two ways, and only one is dangerous:

* **By itself**, from its default pools (172.17–31/16, 192.168/20) or from ``default-address-pools``. It skips
  every subnet that overlaps a *route* of the host, so a host on 172.28.0.0/16 is safe: Docker takes another
  one. What it cannot see is an address *behind the default route*. An operator at 172.17.5.5 reaches the
  host until docker0 takes 172.17.0.0/16; then the answers go to docker0 and the connection is gone for good.
  So the first subnet Docker would take must not hold the address the SSH connection comes from.
* **Because it is told to**: ``bip``, ``fixed-cidr`` and pools that are all covered by routes. Here Docker
  does not choose, and an overlap is an error.

Routes that belong to Docker's own networks are no conflict.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, ip_address, ip_network
from typing import Any

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.rule import Rule, Sample, Wanted, rule
from fleet.catalogue.docker import address_pools_source, default_address_pools

Pool = tuple[IPv4Network, int]
Route = tuple[IPv4Network, str]
_LAN = [{"destination": "10.20.0.0/16", "device": "eno1", "gateway": None}]
_REMEDY = (
    "set default-address-pools in docker_engine_settings to a range nothing else uses, such as"
    ' [{"base": "100.66.0.0/16", "size": 24}], and bip to its first address (100.66.0.1/24)'
)


@rule(
    "preflight.address_pools",
    known_bad=Sample({"network.routes": _LAN}, {"settings": {"bip": "10.20.5.1/24"}}),
)
def told(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Addresses Docker is told to take are free. Reads ``settings`` and ``ssh_client``."""
    settings = _settings(facts, wanted)
    routes = _foreign_routes(facts)
    client = wanted.get("ssh_client")
    for key, network in _explicit(settings):
        clash = next(
            (f"the route {net} by {device}" for net, device in routes if net.overlaps(network)), None
        )
        if clash is None and client and _inside(client, network):
            clash = f"the SSH connection, which comes from {client}"
        if clash is not None:
            yield self.finding(
                f"{key} {network} of daemon.json overlaps {clash}",
                observed=str(network),
                limit="no overlap",
                source="Docker takes what it is told without looking at routes",
                remedy=_REMEDY,
            )


@rule(
    "preflight.address_pools_chosen",
    gate=True,
    reads=("network.routes", "network.addresses"),
    known_bad=Sample({"engine.present": False, "network.addresses": []}, {"ssh_client": "172.17.5.5"}),
)
def chosen(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Docker finds a free subnet for docker0, and it is not the one the SSH connection comes from."""
    settings, client = _settings(facts, wanted), wanted.get("ssh_client")
    if settings.get("bip") or settings.get("bridge") or _has_bridge(facts):
        return
    routes = [network for network, _ in _foreign_routes(facts)]
    first = next(
        (net for net in _subnets(settings) if not any(net.overlaps(route) for route in routes)), None
    )
    if first is None:
        yield self.finding(
            "every address pool of Docker overlaps a route of this host, so its bridge gets no address",
            observed=[str(route) for route in routes],
            limit="one free subnet",
            source=address_pools_source(),
            remedy=_REMEDY,
        )
    elif client and _inside(client, first):
        yield self.finding(
            f"Docker would take {first} for docker0, and the SSH connection comes from {client}:"
            " this host would be cut off",
            observed=str(first),
            limit="not the SSH path",
            source=address_pools_source(),
            remedy=_REMEDY,
        )


@rule(
    "preflight.address_pools_full",
    severity=Severity.INFO,
    known_bad=Sample(
        {
            "network.addresses": [{"device": "docker0", "address": "172.17.0.1/16"}],
            "network.routes": [
                {"destination": "172.16.0.0/12", "device": "eno1", "gateway": None},
                {"destination": "192.168.0.0/16", "device": "eno1", "gateway": None},
            ],
        }
    ),
)
def full(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """With docker0 in place, further networks can still be made."""
    if not _has_bridge(facts):
        return
    routes = [network for network, _ in _foreign_routes(facts)]
    if all(any(net.overlaps(route) for route in routes) for net in _subnets(_settings(facts, wanted))):
        yield self.finding(
            "every address pool of Docker overlaps a route: docker network create will fail",
            observed=[str(route) for route in routes],
            limit="one free subnet",
            source=address_pools_source(),
            remedy=_REMEDY,
        )


def _settings(facts: Facts, wanted: Wanted) -> dict[str, Any]:
    """daemon.json as it will be: what is there, with what is wanted laid over it."""
    return {**(fact(facts, "engine.daemon_json.parsed") or {}), **(wanted.get("settings") or {})}


def _network(text: object) -> IPv4Network | None:
    try:
        network = ip_network(str(text), strict=False)
    except ValueError:
        return None
    return network if isinstance(network, IPv4Network) else None


def _inside(address: str, network: IPv4Network) -> bool:
    try:
        return ip_address(address) in network
    except ValueError:
        return False


def _foreign_routes(facts: Facts) -> list[Route]:
    """Routes other than the default one and those of Docker's own bridges."""
    own = {
        network
        for each in fact(facts, "engine.networks") or []
        for network in map(_network, each.get("subnets") or [])
        if network is not None
    }
    routes: list[Route] = []
    for route in fact(facts, "network.routes") or []:
        device = str(route.get("device") or "")
        network = _network(route.get("destination"))
        if (
            network is None
            or network.prefixlen == 0
            or network in own
            or device.startswith(("docker", "br-"))
        ):
            continue
        routes.append((network, device))
    return routes


def _has_bridge(facts: Facts) -> bool:
    return any(each.get("device") == "docker0" for each in fact(facts, "network.addresses") or [])


def _explicit(settings: dict[str, Any]) -> list[tuple[str, IPv4Network]]:
    named: list[tuple[str, object]] = [(key, settings.get(key)) for key in ("bip", "fixed-cidr")]
    named += [("default-address-pools", pool.get("base")) for pool in _configured(settings)]
    found = [(key, _network(text)) for key, text in named if text]
    return [(key, network) for key, network in found if network is not None]


def _configured(settings: dict[str, Any]) -> list[dict[str, Any]]:
    pools = settings.get("default-address-pools")
    return [pool for pool in pools if isinstance(pool, dict)] if isinstance(pools, list) else []


def _subnets(settings: dict[str, Any]) -> Iterator[IPv4Network]:
    """The subnets Docker tries, in order; at most 4096 of them."""
    configured = [(pool.get("base"), pool.get("size")) for pool in _configured(settings)]
    pools = configured or default_address_pools()
    tried = 0
    for base, size in pools:
        network = _network(base)
        if network is None:
            continue
        for subnet in network.subnets(new_prefix=max(int(size or network.prefixlen), network.prefixlen)):
            tried += 1
            if tried > 4096:
                return
            yield subnet
