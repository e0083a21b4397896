"""Is the way free for the wanted container engine: no other one, and a configuration it can read?"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.rule import Rule, Sample, Wanted, rule
from fleet.catalogue.docker import foreign_packages

_SOURCE = "https://docs.docker.com/engine/install/debian/: the packages conflict"


@rule(
    "preflight.foreign_engine",
    gate=True,
    reads=("engine.present", "packages.installed"),
    known_bad=Sample(
        {"engine.present": True, "packages.installed": {"docker-ce": "5:27.5.1-1~debian.12~bookworm"}},
        {"source": "distribution"},
    ),
)
def foreign(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """No engine of another origin is installed. Reads ``source``: ``distribution``, ``docker``, ``preinstalled``.

    Only the engine's main package counts: containerd or runc alone may belong to something else, and the
    package step's simulation refuses a transaction that would remove them.
    """
    source = str(wanted.get("source") or "distribution")
    if source == "preinstalled":
        return
    installed = fact(facts, "packages.installed") or {}
    main = {"docker-ce", "docker.io", "moby-engine"}
    found = [name for name in foreign_packages(source) if name in main and name in installed]
    if not found:
        return
    other = "docker" if source == "distribution" else "distribution"
    remedy = f"keep it: set docker_engine_source: {other}; or remove {found[0]} yourself, with its containers"
    if "moby-engine" in found:
        remedy = "remove moby-engine yourself, with its containers"
    yield self.finding(
        f"{found[0]} {installed[found[0]]} is installed, but the engine of source {source} is wanted",
        observed=found,
        limit=source,
        source=_SOURCE,
        remedy=remedy,
    )


@rule("preflight.snap_docker", known_bad=Sample({"engine.snap": True}))
def snap(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Docker is not installed as a snap: it keeps its own configuration and data, out of reach."""
    if fact(facts, "engine.snap"):
        yield self.finding(
            "Docker is installed as a snap",
            observed="snap",
            limit="a package",
            source="the snap reads neither /etc/docker/daemon.json nor the host's runtimes",
            remedy="move its containers, then: snap remove docker",
        )


@rule("preflight.podman_docker", known_bad=Sample({"engine.podman_docker": True}))
def podman(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """podman's stand-in for the docker command is not installed."""
    if fact(facts, "engine.podman_docker"):
        yield self.finding(
            "podman-docker is installed: docker is podman here",
            observed="podman-docker",
            limit="absent",
            source=_SOURCE,
            remedy="apt-get remove podman-docker",
        )


@rule(
    "preflight.daemon_json",
    known_bad=Sample(
        {
            "engine.daemon_json": {
                "exists": True,
                "parsed": None,
                "error": {"message": "expecting ,", "line": 3, "column": 5},
            }
        }
    ),
)
def daemon_json(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The engine's configuration can be parsed: the engine would not start again with one that cannot."""
    error = fact(facts, "engine.daemon_json.error")
    if error:
        where = f"/etc/docker/daemon.json:{error.get('line')}:{error.get('column')}"
        yield self.finding(
            f"{where}: {error.get('message')}",
            observed=where,
            limit="valid JSON",
            source="dockerd reads it when it starts",
            remedy="correct the file on the host; fleet keeps keys it does not manage, so it must read them",
        )


@rule(
    "preflight.daemon_json_types",
    severity=Severity.WARNING,
    known_bad=Sample({"engine.daemon_json.parsed": {"ipv6": "true", "experimental": "true"}}),
)
def daemon_json_types(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Switches in daemon.json are true or false, not texts: newer engines do not start with texts."""
    parsed = fact(facts, "engine.daemon_json.parsed") or {}
    features = parsed.get("features") if isinstance(parsed.get("features"), dict) else {}
    wrong = [name for name, value in parsed.items() if value in ("true", "false")]
    wrong += [f"features.{name}" for name, value in (features or {}).items() if value in ("true", "false")]
    if wrong:
        yield self.finding(
            f"/etc/docker/daemon.json has texts where true or false belongs: {', '.join(wrong)}",
            observed=wrong,
            limit="true or false without quotes",
            source="moby/moby issue 44905: accepted by engines before 23.0, refused since",
            remedy="take the quotes off in the file; from engine 23 on check it with:"
            " dockerd --validate --config-file /etc/docker/daemon.json",
        )
