"""Every rule fires on its known-bad sample, stays silent on a healthy host, and cannot go missing."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from fleet.agent.facts.engine import daemon_json
from fleet.audit.facts import why_absent
from fleet.audit.findings import Severity
from fleet.audit.leave import OWN_LABEL, reasons_against
from fleet.audit.rule import Rule
from fleet.audit.rules import evaluate, rules
from fleet.core.data import data_dir
from tests.facts import healthy_facts, healthy_gpu_facts

HEALTHY = healthy_facts()

# Deleting a rule, or renaming one, must be a decision seen here. True: the rule is a gate.
EXPECTED = {
    "preflight.os": True,
    "preflight.python": True,
    "preflight.clock": True,
    "preflight.disk": True,
    "preflight.root_full": False,
    "preflight.boot_room": False,
    "preflight.driver_room": False,
    "preflight.package_manager": True,
    "preflight.package_sources": False,
    "preflight.packages_interrupted": False,
    "preflight.package_lock": False,
    "preflight.foreign_hold": False,
    "preflight.foreign_engine": True,
    "preflight.snap_docker": False,
    "preflight.podman_docker": False,
    "preflight.daemon_json": False,
    "preflight.daemon_json_types": False,
    "preflight.address_pools": False,
    "preflight.address_pools_chosen": True,
    "preflight.address_pools_full": False,
    "preflight.kubelet": True,
    "preflight.slurmd": True,
    "preflight.gpu_operator": True,
    "preflight.gpus": False,
    "preflight.gpu_branch": False,
    "preflight.gpu_flavour": False,
    "preflight.mixed_gpus": False,
    "preflight.runfile_driver": False,
    "preflight.driver_versions": False,
    "preflight.mixed_branches": False,
    "preflight.fabric_manager": False,
    "preflight.driver_hold": False,
    "preflight.next_kernel": False,
    "preflight.out_of_tree": False,
    "preflight.nouveau": False,
    "preflight.initramfs": False,
    "preflight.secure_boot_key": False,
    "preflight.gpu_users": False,
    "preflight.gpu_containers": False,
}
RULES = rules("preflight")


def found(changes: dict[str, Any], wanted: dict[str, Any] | None = None) -> list[str]:
    return [finding.id for finding in evaluate("preflight", healthy_facts(changes), wanted or {})]


def sample_facts(rule: Rule) -> dict[str, Any]:
    lay_over = healthy_gpu_facts if rule.known_bad.gpu else healthy_facts
    return lay_over(dict(rule.known_bad.facts))


@pytest.mark.parametrize("facts", [HEALTHY, healthy_gpu_facts()], ids=["without GPUs", "with GPUs"])
def test_the_healthy_host_is_a_valid_facts_document(facts: dict[str, Any]) -> None:
    schema = json.loads((data_dir("schemas") / "facts.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(facts)


def test_exactly_these_rules_are_there() -> None:
    assert {rule.id: rule.gate for rule in RULES} == EXPECTED


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_fires_on_its_known_bad_sample_and_not_on_a_healthy_host(rule: Rule) -> None:
    fired = rule.evaluate(sample_facts(rule), rule.known_bad.wanted)
    assert [finding.id for finding in fired] == [rule.id]
    assert fired[0].severity is rule.severity
    assert all((fired[0].what, fired[0].limit_source, fired[0].remedy))
    json.dumps(fired[0].as_json(), allow_nan=False)
    assert rule.evaluate(HEALTHY, {"now_unix": 1_800_000_010.0, "ssh_client": "172.28.0.1"}) == []


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.known_bad.gpu], ids=lambda rule: rule.id)
def test_a_rule_of_gpu_hosts(rule: Rule) -> None:
    """It is silent on the healthy host for the same playbook, and on a host that has no GPU."""
    wanted = rule.known_bad.wanted
    assert rule.evaluate(healthy_gpu_facts(), wanted) == []
    assert rule.evaluate(sample_facts(rule) | {"gpus": [], "nvswitches": []}, wanted) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_says_what_is_right_in_a_sentence(rule: Rule) -> None:
    assert rule.holds.rstrip("`").endswith((".", "?"))
    assert len(rule.holds) < 200


@pytest.mark.parametrize(
    ("rule", "path"),
    [(rule, path) for rule in RULES if rule.gate for path in rule.reads],
    ids=lambda value: value.id if isinstance(value, Rule) else value,
)
def test_a_gate_does_not_pass_what_it_does_not_know(rule: Rule, path: str) -> None:
    (finding,) = rule.evaluate(healthy_facts({path: None, f"{path}_reason": "permission"}), {})
    assert finding.observed is None
    assert finding.severity is Severity.ERROR
    assert "reading it was not permitted" in finding.what


def test_every_gate_says_what_it_reads() -> None:
    assert all(rule.reads for rule in RULES if rule.gate)


def test_a_missing_parent_is_explained_too() -> None:
    assert (
        why_absent({"clock": None, "clock_reason": "not_collected"}, "clock.unix") == "it was not collected"
    )


@pytest.mark.parametrize(
    ("os_id", "version", "fine"),
    [
        ("debian", "11", True),
        ("debian", "13", True),
        ("debian", "10", False),
        ("debian", "14", False),
        ("ubuntu", "22.04", True),
        ("ubuntu", "26.04", True),
        ("ubuntu", "20.04", False),
        ("rocky", "9.4", False),
        ("arch", "2026", False),
    ],
)
def test_supported_releases(os_id: str, version: str, fine: bool) -> None:
    assert ("preflight.os" not in found({"os.id": os_id, "os.version_id": version})) is fine


def test_a_planned_distribution_is_named_as_such() -> None:
    (finding,) = evaluate("preflight", healthy_facts({"os.id": "rocky", "os.version_id": "9.4"}), {})
    assert "planned" in finding.what
    assert "Debian 11 to 13" in finding.remedy


@pytest.mark.parametrize(("behind", "fires"), [(299.0, False), (301.0, True), (-301.0, True)])
def test_five_minutes_of_clock(behind: float, fires: bool) -> None:
    assert ("preflight.clock" in found({}, {"now_unix": 1_800_000_000.0 + behind})) is fires


POP = {"os.id": "pop", "os.like": ["ubuntu", "debian"], "os.version_id": "22.04", "os.base_codename": "jammy"}
CENTOS = {
    "os.id": "centos",
    "os.like": ["rhel", "fedora"],
    "os.version_id": "8",
    "os.platform_id": "platform:el8",
}


def test_a_derivative_is_refused_and_not_taken_for_its_parent() -> None:
    (finding,) = evaluate("preflight", healthy_facts({**POP, "os.name": "Pop!_OS 22.04 LTS"}), {})
    assert finding.what == (
        "Pop!_OS 22.04 LTS is not supported; it derives from Ubuntu jammy, and fleet does not guess from that"
    )


def test_one_that_calls_itself_by_its_parents_id_is_refused_by_its_version() -> None:
    old = {"os.id": "ubuntu", "os.like": ["debian"], "os.version_id": "18.10", "os.name": "Pop!_OS 18.10"}
    (finding,) = evaluate("preflight", healthy_facts(old), {})
    assert finding.what == "Pop!_OS 18.10 is not supported"


def test_a_release_before_those_that_are_planned_is_not_planned() -> None:
    (finding,) = evaluate("preflight", healthy_facts({**CENTOS, "os.name": "CentOS Linux 8"}), {})
    assert finding.what == "CentOS Linux 8 is not supported"


class TestDaemonJson:
    @pytest.mark.parametrize(
        ("text", "place", "words"),
        [
            (
                '{\n  "icc": false,\n  "ipv6": false,}\n',
                "daemon.json:3:16:",
                "a comma before the closing bracket",
            ),
            ("<html>\n<body>404</body></html>\n", "daemon.json:1:1:", "is not JSON: it begins with '<html>"),
            ('{"icc": false}\n{"ipv6": “false”}\n', "daemon.json:2:1:", "a second value begins here"),
            ('{\n  # ours\n  "icc": false\n}\n', "daemon.json:2:3:", "comments are not JSON"),
            ('[{"icc": false}]', "daemon.json:1:1:", "holds an array"),
        ],
    )
    def test_a_file_the_engine_would_not_start_with(self, text: str, place: str, words: str) -> None:
        facts = healthy_facts({"engine.daemon_json": daemon_json(text.encode())})
        (finding,) = evaluate("preflight", facts, {})
        assert (finding.id, finding.blocks) == ("preflight.daemon_json", True)
        assert place in finding.what
        assert words in finding.what

    def test_texts_for_switches_are_a_warning(self) -> None:
        text = '{"icc": "false", "log-opts": {"compress": "true"}, "features": {"cdi": "true"}, "bridge": "none"}'
        facts = healthy_facts({"engine.daemon_json": daemon_json(text.encode())})
        (finding,) = evaluate("preflight", facts, {})
        assert (finding.id, finding.observed) == ("preflight.daemon_json_types", ["icc", "features.cdi"])

    @pytest.mark.parametrize("text", [None, b"", b'{"icc": false}'])
    def test_an_empty_file_is_an_empty_object(self, text: bytes | None) -> None:
        assert found({"engine.daemon_json": daemon_json(text)}) == []


class TestDisk:
    def test_counts_where_the_wanted_data_root_lies(self) -> None:
        disks = [
            {"mount": "/", "free_bytes": 5_400_000_000, "free_inodes": 1_000_000},
            {"mount": "/mnt/data", "free_bytes": 870_000_000_000, "free_inodes": 1_000_000},
        ]
        small = {"disks": disks, "paths.engine_root.free_bytes": 5_400_000_000}
        assert found(small, {"free_bytes": 20_000_000_000}) == ["preflight.disk"]
        elsewhere = {"free_bytes": 20_000_000_000, "settings": {"data-root": "/mnt/data/docker"}}
        assert found(small, elsewhere) == []
        assert found(small, {**elsewhere, "settings": {"data-root": "/mnt/database"}}) == ["preflight.disk"]

    def test_an_image_that_is_there_needs_no_room(self) -> None:
        digest = f"sha256:{'a' * 64}"
        full = {
            "paths.engine_root.free_bytes": 0,
            "engine.images": [{"id": "i", "tags": ["pytorch:2"], "digests": [digest], "size_bytes": 1}],
        }
        assert found(full, {"image_digest": digest}) == []

    def test_inodes_run_out_too(self) -> None:
        assert found({"paths.engine_root.free_inodes": 500}) == ["preflight.disk"]
        elsewhere = [{"mount": "/mnt", "free_bytes": 300_000_000_000, "free_inodes": 500}]
        assert found({"disks": elsewhere}, {"settings": {"data-root": "/mnt/docker"}}) == ["preflight.disk"]


class TestEngine:
    def test_the_distributions_engine_is_foreign_to_dockers(self) -> None:
        assert found({}, {"source": "docker"}) == ["preflight.foreign_engine"]
        assert found({}, {"source": "distribution"}) == []

    def test_containerd_alone_is_no_engine(self) -> None:
        assert found({"packages.installed": {"containerd.io": "1.7.24-1"}}) == []

    def test_the_remedy_keeps_what_is_there(self) -> None:
        facts = healthy_facts({"packages.installed": {"docker-ce": "5:27.5.1"}})
        (finding,) = evaluate("preflight", facts, {"source": "distribution"})
        assert "docker_engine_source: docker" in finding.remedy


BARE = {"engine.networks": [], "network.addresses": [], "engine.daemon_json": {"parsed": None}}
LAB = [
    {"destination": "0.0.0.0/0", "device": "eth0", "gateway": "172.28.0.1"},
    {"destination": "172.28.0.0/16", "device": "eth0", "gateway": None},
]


def route(destination: str) -> dict[str, Any]:
    return {"destination": destination, "device": "eno1", "gateway": None}


class TestAddressPools:
    def test_a_host_inside_dockers_default_range_is_fine(self) -> None:
        assert found({**BARE, "network.routes": LAB}, {"ssh_client": "172.28.0.1"}) == []

    def test_the_first_subnet_docker_takes_is_what_counts(self) -> None:
        routes = [route("172.17.0.0/16")]
        assert found({**BARE, "network.routes": routes}, {"ssh_client": "172.17.5.5"}) == []
        assert found({**BARE, "network.routes": routes}, {"ssh_client": "172.18.5.5"}) == [
            "preflight.address_pools_chosen"
        ]

    def test_with_its_bridge_in_place_nothing_new_is_taken(self) -> None:
        assert found({}, {"ssh_client": "172.17.5.5"}) == []

    def test_all_pools_taken_leaves_no_bridge(self) -> None:
        routes = [route("172.16.0.0/12"), route("192.168.0.0/16")]
        assert found({**BARE, "network.routes": routes}) == ["preflight.address_pools_chosen"]

    def test_pools_wanted_over_a_route(self) -> None:
        settings = {"default-address-pools": [{"base": "10.0.0.0/8", "size": 24}]}
        facts = healthy_facts({**BARE, "network.routes": [route("10.20.0.0/16")]})
        (finding,) = evaluate("preflight", facts, {"settings": settings})
        assert finding.id == "preflight.address_pools"
        assert "10.0.0.0/8" in finding.what
        assert "10.20.0.0/16 by eno1" in finding.what
        assert "default-address-pools" in finding.remedy

    def test_pools_already_in_daemon_json_count(self) -> None:
        parsed = {"bip": "10.20.0.1/24"}
        facts = {**BARE, "engine.daemon_json": {"parsed": parsed}, "network.routes": [route("10.20.0.0/16")]}
        assert found(facts) == ["preflight.address_pools"]

    def test_what_is_wanted_replaces_what_is_there(self) -> None:
        facts = {
            **BARE,
            "engine.daemon_json": {"parsed": {"bip": "10.20.0.1/24"}},
            "network.routes": [route("10.20.0.0/16")],
        }
        assert found(facts, {"settings": {"bip": "100.66.0.1/24"}}) == []

    def test_the_ssh_path_may_lie_behind_the_default_route(self) -> None:
        facts = {**BARE, "network.routes": LAB}
        assert found(facts, {"settings": {"bip": "10.9.0.1/16"}, "ssh_client": "10.9.3.4"}) == [
            "preflight.address_pools"
        ]

    def test_dockers_own_routes_are_no_conflict(self) -> None:
        routes = [{"destination": "10.9.0.0/24", "device": "br-0123456789ab", "gateway": None}]
        assert found({"network.routes": routes}, {"settings": {"bip": "10.9.0.1/24"}}) == []

    def test_odd_addresses_are_no_crash(self) -> None:
        facts = {**BARE, "network.routes": [route("nonsense"), route("fe80::/64")]}
        assert found(facts, {"settings": {"default-address-pools": "y"}, "ssh_client": "::1"}) == []


def holder(**changes: Any) -> dict[str, Any]:
    """A process as facts list it: anna's python on GPUs 0 and 3."""
    devices = ["/dev/nvidia0", "/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    return {
        "pid": 40335, "command": "python", "uid": 1000, "user": "anna", "container_id": None, "unit": None,
        "devices": devices, "kind": "work", **changes,
    }  # fmt: skip


class TestLeave:
    def test_nobody_uses_a_healthy_host(self) -> None:
        assert reasons_against(HEALTHY) == []

    def test_fleets_own_and_stopped_containers_do_not_count(self) -> None:
        containers = [
            {"name": "ours", "state": "running", "labels": {"fleet.config_hash": "x"}},
            {"name": "old", "state": "exited", "labels": {}},
        ]
        assert reasons_against(healthy_facts({"engine.containers": containers})) == []

    def test_an_engine_that_does_not_answer_counts_as_used(self) -> None:
        (reason,) = reasons_against(healthy_facts({"engine.containers": None}))
        assert "not known" in reason

    def test_an_engine_nobody_could_ask_about_counts_as_used(self) -> None:
        assert reasons_against(healthy_facts({"engine": None}))

    def test_many_containers_are_counted(self) -> None:
        containers = [{"name": f"job-{number}", "state": "running", "labels": {}} for number in range(8)]
        (reason,) = reasons_against(healthy_facts({"engine.containers": containers}))
        assert reason == ("8 containers of others are running (job-0, job-1, job-2, job-3, job-4 and 3 more)")

    def test_all_other_users(self) -> None:
        busy = {"kubelet.active": True, "slurmd.active": True, "gpu_operator.active": True}
        assert len(reasons_against(healthy_facts({**busy, "desktop_sessions": [{"user": "anna"}]}))) == 4

    def test_services_on_a_gpu_are_nobodys_work(self) -> None:
        assert reasons_against(healthy_gpu_facts()) == []

    def test_a_process_on_a_gpu_counts_with_its_name(self) -> None:
        facts = healthy_gpu_facts({"driver.holders": [holder()]})
        assert reasons_against(facts) == ["python (pid 40335, user anna) uses GPU 0, 3"]

    def test_a_display_and_a_process_without_a_user_name_count(self) -> None:
        display = holder(
            pid=1310, command="Xorg", user=None, uid=0, kind="display", devices=["/dev/nvidiactl"]
        )
        facts = healthy_gpu_facts({"driver.holders": [display]})
        assert reasons_against(facts) == ["Xorg (pid 1310, uid 0) uses the driver"]

    def test_a_service_names_itself_and_a_session_does_not(self) -> None:
        facts = healthy_gpu_facts(
            {"driver.holders": [holder(unit="ollama.service"), holder(pid=7, unit="session-3.scope")]}
        )
        assert reasons_against(facts) == [
            "python (pid 40335, user anna, ollama.service) uses GPU 0, 3",
            "python (pid 7, user anna) uses GPU 0, 3",
        ]

    def test_a_process_in_a_container_names_it(self) -> None:
        ours = {"id": "0123456789abcdef", "name": "jupyter", "state": "running", "labels": {OWN_LABEL: "x"}}
        facts = healthy_gpu_facts(
            {"driver.holders": [holder(container_id="0123456789abcdef")], "engine.containers": [ours]}
        )
        assert reasons_against(facts) == ["python (pid 40335, user anna, container jupyter) uses GPU 0, 3"]

    def test_many_processes_are_counted(self) -> None:
        facts = healthy_gpu_facts({"driver.holders": [holder(pid=number) for number in range(1, 9)]})
        assert reasons_against(facts)[-1] == "3 more processes use GPUs"

    def test_holders_that_nobody_could_list_count_as_use(self) -> None:
        assert reasons_against(healthy_gpu_facts({"driver.holders": None})) == [
            "who uses the GPUs is not known"
        ]
        assert reasons_against(healthy_gpu_facts({"driver": None})) == ["who uses the GPUs is not known"]
