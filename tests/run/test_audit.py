"""An audit's sources and its document: live, stored, a folder, a question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.subject import Subject
from fleet.audit.compatibility.whatif import Change
from fleet.catalogue.catalogue import load
from fleet.core.connection import ConnectionSettings
from fleet.core.errors import BecomeFailed, ConnectFailed, ExitCode, InputError
from fleet.core.schema import validate
from fleet.core.secret import Scrubber
from fleet.inventory import LoadOptions
from fleet.run.asking import Asked
from fleet.run.audit import Wanted, document, judged
from fleet.run.audit_sources import HostAudit, live, of_folder, outdate, question, stored
from fleet.run.images import Inspector
from fleet.store import Store
from tests.facts import health_facts, healthy_facts

CU128 = "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime"
CU126 = "pytorch/pytorch:2.7.0-cuda12.6-cudnn9-runtime"
PLAIN, SHIPPED = LoadOptions(), load()
OLD = {"driver.loaded.version": "515.105.01", "driver.library_version": "515.105.01"}

Json = dict[str, Any]


def pascal(changes: Json | None = None) -> Json:
    """A host with a GTX 1080 Ti."""
    one = {"gpus.0.device_id": "1b06", "gpus.0.name": "NVIDIA GeForce GTX 1080 Ti"}
    return health_facts("t4", {**one, "driver.loaded.flavour": "proprietary", **(changes or {})})


def made(hosts: list[HostAudit], source: str = "live", **wanted: Any) -> Json:
    asked = Wanted(**{"image": CU128, **wanted})
    found = document(judged(hosts, asked, load()), asked, load(), source=source, inventory="site.yaml")
    assert validate(found, "audit") == []
    return found


def inventory(folder: Path, text: str = "", names: tuple[str, ...] = ("gpu01", "gpu02")) -> Asked:
    file = folder / "site.yaml"
    hosts = "".join(f"    {name}: {{ansible_host: 192.0.2.1, ansible_become: true}}\n" for name in names)
    file.write_text(f"all:\n{text}  hosts:\n{hosts}", encoding="utf-8")
    return Asked(str(file))


# -- live -------------------------------------------------------------------------------------------


class FakeAgent:
    def __init__(self, facts: Json, uid: int, asked: list[Json], image: Json) -> None:
        self.hello = {"uid": uid}
        self._facts, self._asked, self._image = facts, asked, image

    def request(self, method: str, params: Json, *, deadline_s: float) -> Json:
        self._asked.append({"method": method, **params})
        if method == "query":
            return {"answers": {"image": {"ok": True, "value": self._image}}}
        return self._facts

    def close(self) -> None:
        pass


@pytest.fixture
def connector(monkeypatch: pytest.MonkeyPatch) -> Any:
    class Fake:
        hosts: dict[str, Any] = {}  # noqa: RUF012 - one per test
        asked: list[Json] = []  # noqa: RUF012 - one per test
        answers: Json = {}  # noqa: RUF012 - one per test
        sudo = True

        def __init__(self, scrubber: Scrubber, *, accept_new: bool) -> None:
            pass

        def connect(self, settings: ConnectionSettings) -> FakeAgent:
            known = self.hosts[settings.name]
            if isinstance(known, Exception):
                raise known
            if settings.become.enabled and not self.sudo:
                raise BecomeFailed("sudo needs a password to become root")
            return FakeAgent(known, 0 if settings.become.enabled else 1000, self.asked, self.answers)

        def close(self) -> None:
            pass

    Fake.hosts, Fake.asked, Fake.answers = {}, [], {}
    monkeypatch.setattr("fleet.run.live.Connector", Fake)
    monkeypatch.setattr("fleet.run.images.on_host.Connector", Fake)
    return Fake


def test_hosts_are_asked_for_facts_and_for_nothing_else(tmp_path: Path, connector: Any) -> None:
    connector.hosts = {"gpu01": health_facts("t4"), "gpu02": pascal()}
    found = made(live(inventory(tmp_path), PLAIN, Scrubber(), SHIPPED))
    assert [one["method"] for one in connector.asked] == ["facts", "facts"]
    assert "gpu_probe" not in connector.asked[0]["groups"]
    assert [(host["name"], host["status"]) for host in found["hosts"]] == [
        ("gpu01", "runs_with_warnings"),
        ("gpu02", "does_not_run"),
    ]
    assert found["exit_code"] == ExitCode.FINDINGS
    assert found["reports"] is None


def test_a_host_that_has_an_unknown_image_is_asked_for_it(tmp_path: Path, connector: Any) -> None:
    name, digest = "127.0.0.1:1/ml/train:7", "sha256:" + "e" * 64
    having = {"engine.images": [{"tags": [name], "digests": [digest], "size_bytes": 1}]}
    connector.hosts = {"gpu01": health_facts("t4"), "gpu02": health_facts("t4", having)}
    connector.answers = {"exists": True, "environment": ["PYTORCH_VERSION=2.7.0+cu128"], "labels": {}}
    hosts = live(inventory(tmp_path), PLAIN, Scrubber(), SHIPPED, name)
    asked, images = Wanted(image=name), load().images
    found = document(
        judged(hosts, asked, load(), Inspector(images, online=True)),
        asked,
        load(),
        source="live",
        inventory="site.yaml",
    )
    assert "audit.image.not_in_catalogue" not in {one["id"] for one in found["causes"]}
    assert connector.asked[2:] == [
        {
            "method": "query",
            "queries": [
                {"id": "image", "kind": "image_configuration", "reference": f"127.0.0.1:1/ml/train@{digest}"}
            ],
        }
    ]


def test_a_host_that_does_not_answer_is_never_called_well(tmp_path: Path, connector: Any) -> None:
    connector.hosts = {
        "gpu01": ConnectFailed("no answer", remedy="look at sshd"),
        "gpu02": health_facts("t4"),
    }
    found = made(live(inventory(tmp_path), PLAIN, Scrubber(), SHIPPED))
    assert found["counts"] == {"unreachable": 1, "runs_with_warnings": 1}
    assert found["exit_code"] == ExitCode.UNREACHABLE
    assert found["hosts"][0]["error_remedy"] == "look at sshd"


def test_a_host_that_answers_nonsense_costs_itself_only(tmp_path: Path, connector: Any) -> None:
    broken = health_facts("t4", {"gpus": "eight", "driver": 7})
    connector.hosts = {"gpu01": broken, "gpu02": health_facts("t4")}
    found = made(live(inventory(tmp_path), PLAIN, Scrubber(), SHIPPED))
    assert [host["status"] for host in found["hosts"]] == ["failed", "runs_with_warnings"]
    assert "does not follow schema facts" in found["hosts"][0]["error"]
    assert found["exit_code"] == ExitCode.FAILED


def test_what_an_older_fleet_did_not_collect_is_not_known_and_no_failure(
    tmp_path: Path, connector: Any
) -> None:
    old = health_facts("t4")
    del old["interconnect"], old["container_toolkit"], old["driver"]["fabric_manager"]
    connector.hosts = {"gpu01": old}
    (one,) = made(live(inventory(tmp_path, names=("gpu01",)), PLAIN, Scrubber(), SHIPPED))["hosts"]
    assert (one["status"], one["error"]) == ("unknown", None)
    assert "audit.facts.unknown" in {finding["id"] for finding in one["findings"]}


def test_without_root_it_goes_as_far_as_it_can_and_says_so(tmp_path: Path, connector: Any) -> None:
    connector.sudo = False
    facts = health_facts("t4", {"driver.holders": None, "driver.holders_reason": "permission"})
    connector.hosts = {"gpu01": facts}
    (host,) = made(live(inventory(tmp_path, names=("gpu01",)), PLAIN, Scrubber(), SHIPPED))["hosts"]
    assert host["root"] is False
    assert host["notes"][0] == "asked without root: sudo needs a password to become root"
    assert "driver.holders" in host["notes"][1]


def test_the_image_is_the_inventorys_where_none_is_given(tmp_path: Path, connector: Any) -> None:
    connector.hosts = {"gpu01": health_facts("t4")}
    digest = "sha256:" + "0" * 64
    image = "image: 'pytorch/pytorch:{{ tag }}'"
    said = f"  vars: {{tag: 2.7.0-cuda12.6-cudnn9-runtime, {image}, image_digest: '{digest}'}}\n"
    (host,) = made(live(inventory(tmp_path, said, ("gpu01",)), PLAIN, Scrubber(), SHIPPED), image=None)[
        "hosts"
    ]
    assert host["image"] == f"{CU126}@{digest}"
    assert "audit.image.no_digest" not in {one["id"] for one in host["findings"]}


def test_an_image_of_the_inventory_that_is_none_is_bad_input_naming_the_host(
    tmp_path: Path, connector: Any
) -> None:
    connector.hosts = {"gpu01": health_facts("t4")}
    hosts = live(
        inventory(tmp_path, "  vars: {image: 'Not An Image'}\n", ("gpu01",)), PLAIN, Scrubber(), SHIPPED
    )
    with pytest.raises(InputError, match="gpu01: "):
        made(hosts, image=None)


def test_what_the_inventorys_model_needs_is_held_against_the_gpu(tmp_path: Path, connector: Any) -> None:
    connector.hosts = {"gpu01": health_facts("t4")}
    hosts = live(
        inventory(tmp_path, "  vars: {training_model: {parameters_b: 7}}\n", ("gpu01",)),
        PLAIN,
        Scrubber(),
        SHIPPED,
    )
    (host,) = made(hosts)["hosts"]
    assert "audit.memory.model" in {one["id"] for one in host["findings"]}


# -- reports ----------------------------------------------------------------------------------------


def keep(store: Store, run: str, host: str, facts: Json | None) -> None:
    store.create_run(run, playbook="p", inventory="i", operator="o", controller="c", hosts=[host])
    store.put_report(run, host, {"schema": "fleet.report/1", "run": run, "host": host, "facts": facts})


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def test_stored_reports_say_how_old_they_are_and_a_host_without_one_is_not_well(
    tmp_path: Path, store: Store
) -> None:
    keep(store, "a" * 12, "gpu01", health_facts("t4"))
    found = made(stored(inventory(tmp_path), PLAIN, store, SHIPPED), "store")
    assert found["reports"] == {"oldest": "2026-11-30T12:00:00Z", "newest": "2026-11-30T12:00:00Z"}
    assert [(host["status"], host["run"]) for host in found["hosts"]] == [
        ("runs_with_warnings", "a" * 12),
        ("no_report", None),
    ]
    assert found["exit_code"] == ExitCode.FINDINGS
    assert made(
        stored(inventory(tmp_path), PLAIN, store, SHIPPED), "store", options=Options(allow_unknown=True)
    )["exit_code"] == (ExitCode.FINDINGS)


def test_the_same_reports_make_the_same_bytes(tmp_path: Path, store: Store) -> None:
    keep(store, "a" * 12, "gpu01", health_facts("t4"))
    texts = {
        json.dumps(made(stored(inventory(tmp_path), PLAIN, store, SHIPPED), "store", best=True))
        for _ in range(3)
    }
    assert len(texts) == 1


def test_a_folder_of_reports(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    (folder / "7f3a").mkdir(parents=True)
    report = {"schema": "fleet.report/1", "run": "7f3a", "host": "gpu02", "facts": pascal()}
    (folder / "7f3a" / "gpu02.json").write_text(json.dumps(report))
    old = {**health_facts("t4"), "collected_at": "2026-01-01T00:00:00Z"}
    older = {"schema": "fleet.report/1", "run": "0000", "host": "gpu02", "facts": old}
    (folder / "gpu02-old.json").write_text(json.dumps(older))
    (folder / "facts.json").write_text(json.dumps(health_facts("t4", {"identity.hostname": "gpu07"})))
    (folder / "run.json").write_text(json.dumps({"schema": "fleet.run/1"}))
    (folder / "other.json").write_text("[]")
    found = made(of_folder(folder, None, PLAIN, SHIPPED), "folder")
    assert [(host["name"], host["run"], host["status"]) for host in found["hosts"]] == [
        ("gpu02", "7f3a", "does_not_run"),
        ("gpu07", None, "runs_with_warnings"),
    ]
    found = made(of_folder(folder, inventory(tmp_path), PLAIN, SHIPPED), "folder")
    assert [(host["name"], host["status"]) for host in found["hosts"]] == [
        ("gpu01", "no_report"),
        ("gpu02", "does_not_run"),
    ]


def test_a_folder_without_reports_or_with_broken_ones_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no report of a host"):
        of_folder(tmp_path, None, PLAIN, SHIPPED)
    (tmp_path / "gpu01.json").write_text('{"schema": ')
    with pytest.raises(InputError, match=r"gpu01\.json cannot be read as JSON"):
        of_folder(tmp_path, None, PLAIN, SHIPPED)


# -- judging ----------------------------------------------------------------------------------------


def ask(gpu: Any, driver: str = "580.159.03", **wanted: Any) -> Json:
    return made(question(Subject.from_question(gpu=gpu, driver=driver), "question"), "question", **wanted)


@pytest.mark.parametrize(
    ("gpu", "wanted", "code"),
    [
        ("T4", {}, 0),
        ("T4", {"fail_on": "warning"}, 4),
        ("GTX 1080 Ti", {}, 4),
        ("GTX 1080 Ti", {"image": CU126}, 0),
        ("T4", {"image": "registry.example.net/own:1"}, 4),
        ("T4", {"image": "registry.example.net/own:1", "options": Options(allow_unknown=True)}, 0),
        ("GTX 1080 Ti", {"options": Options(allow_unknown=True)}, 4),
        ("T4", {"image": CU128.replace("cudnn9", "cudnn8")}, 4),
    ],
)
def test_exit_codes(gpu: str, wanted: Json, code: int) -> None:
    assert ask(gpu, **wanted)["exit_code"] == code


def test_one_cause_on_two_hundred_hosts_is_one_entry() -> None:
    subject = Subject.from_question(gpu="GTX 1080 Ti", driver="580.159.03")
    other = Subject.from_question(gpu="GTX 1080 Ti", driver="570.211.01")
    hosts = [HostAudit(f"lab{number:03}", subject=(subject, other)[number % 2]) for number in range(1, 201)]
    found = made(hosts)
    (cause,) = [one for one in found["causes"] if one["severity"] == "error"]
    assert (cause["id"], len(cause["hosts"])) == ("audit.image.arch", 200)
    assert cause["change"] == "image 2.7.0-cuda12.6-cudnn9-runtime"


def test_what_is_supposed_is_judged() -> None:
    assert ask("GTX 1080 Ti", change=Change(image=CU126))["exit_code"] == 0
    found = ask("RTX 5090", "550.90.07", change=Change(driver="580.159.04"))
    assert (found["exit_code"], found["what_if"]) == (0, {"driver": "580.159.04"})
    assert ask("RTX 5090", "550.90.07")["exit_code"] == 4


def test_every_gpu_has_its_own_status(tmp_path: Path) -> None:
    facts = health_facts("h100", {"gpus.3.device_id": "1b06", "gpus.3.name": "NVIDIA GeForce GTX 1080 Ti"})
    (tmp_path / "one.json").write_text(json.dumps(facts))
    (host,) = made(of_folder(tmp_path, None, PLAIN, SHIPPED), "folder")["hosts"]
    bad = [gpu["address"] for gpu in host["gpus"] if gpu["status"] == "does_not_run"]
    about = {one["gpu"] for one in host["findings"] if one["id"] == "audit.image.arch"}
    assert about == {"0000:61:00.0"}
    assert "0000:61:00.0" in bad


def test_hosts_without_gpus_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(healthy_facts()))
    found = made(of_folder(tmp_path, None, PLAIN, SHIPPED), "folder", best=True)
    assert found["counts"] == {"no_gpu": 1}
    assert found["best_image"] == {"one": None, "groups": [], "refused": []}


def test_a_tag_that_cannot_exist_counts_on_a_host_without_gpus_too(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(healthy_facts()))
    hosts = of_folder(tmp_path, None, PLAIN, SHIPPED)
    found = made(hosts, "folder", image="pytorch/pytorch:2.7.0-cuda11.8-cudnn8-runtime", best=True)
    (host,) = found["hosts"]
    assert (host["status"], found["exit_code"]) == ("does_not_run", ExitCode.FINDINGS)
    assert [one["id"] for one in host["findings"]] == ["audit.image.no_such_tag"]
    (change,) = host["smallest_change"]["changes"]
    assert change["to"] == "pytorch/pytorch:2.7.0-cuda11.8-cudnn9-runtime"
    assert found["best_image"] == {"one": None, "groups": [], "refused": []}
    other = made(hosts, "folder", image="registry.example.net/own:1")
    assert other["counts"] == {"no_gpu": 1}


def test_a_report_older_than_it_may_be_is_stale_and_not_judged(tmp_path: Path, store: Store) -> None:
    noon = 1_796_040_000.0  # 2026-11-30T12:00:00Z, when these facts were collected
    keep(store, "a" * 12, "gpu01", health_facts("t4"))
    hosts = stored(inventory(tmp_path), PLAIN, store, SHIPPED)
    outdate(hosts, 3600, noon + 3600)
    assert [host.stale for host in hosts] == [False, False]
    outdate(hosts, 3600, noon + 3601)
    found = made(hosts, "store", best=True, options=Options(allow_unknown=True))
    assert validate(found, "audit") == []
    assert found["counts"] == {"stale": 1, "no_report": 1}
    assert found["exit_code"] == ExitCode.FINDINGS
    one = found["hosts"][0]
    assert (one["status"], one["findings"], one["smallest_change"]) == ("stale", [], None)
    assert "2026-11-30T12:00:00Z" in one["error"]
    assert found["best_image"] == {"one": None, "groups": [], "refused": []}
    hosts[0].collected_at = None
    outdate(hosts, 3600, noon)
    assert hosts[0].stale


def test_an_image_that_was_inspected_on_one_host_is_known_for_all_with_its_digest(tmp_path: Path) -> None:
    digest = "sha256:" + "a1" * 32
    check = {
        "passed": True, "reason": None, "reference": "registry.example.net/own:1", "digest": digest,
        "checked_at": "2026-11-30T12:00:00Z", "simulated": False,
        "key": {"boot": None, "driver": None, "image": digest},
        "versions": {"torch": "2.7.0", "cuda": "12.8", "arch_list": ["sm_75", "sm_90"]},
    }  # fmt: skip
    checked = health_facts("t4", {"container_check": check, "identity.hostname": "a"})
    (tmp_path / "a.json").write_text(json.dumps(checked))
    (tmp_path / "b.json").write_text(json.dumps(pascal({"identity.hostname": "b"})))
    found = made(
        of_folder(tmp_path, None, PLAIN, SHIPPED), "folder", image=f"registry.example.net/own:1@{digest}"
    )
    assert [host["status"] for host in found["hosts"]] == ["runs_with_warnings", "does_not_run"]
    found = made(of_folder(tmp_path, None, PLAIN, SHIPPED), "folder", image="registry.example.net/own:1")
    assert {host["status"] for host in found["hosts"]} == {"unknown"}


def test_one_job_on_unlike_gpus_is_told() -> None:
    hosts = [
        HostAudit(name, subject=Subject.from_question(gpu=gpu, driver="580.159.03"))
        for name, gpu in (("a", "T4"), ("b", "A100-SXM4-80GB"))
    ]
    assert "audit.mixed.job" in {one["id"] for one in made(hosts, one_job=True)["causes"]}
    assert "audit.mixed.job" not in {one["id"] for one in made(hosts)["causes"]}
