"""Images by digest and by tag, registry credentials, and what a failed pull says."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.engine import Engine
from fleet.agent.resources import load
from fleet.agent.resources.base import Provides, StepCancelled, StepFailed
from fleet.agent.resources.image import size_text

from .fake import REGISTRY, FakeEngine

REFERENCE = f"{REGISTRY}/torch:2.7"
DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64


def differences(host: Any, kind: str, **args: Any) -> list[dict[str, Any]]:
    resource = load(kind)
    return resource.diff(resource.read(host, args), args)


def apply(host: Any, report: Any, kind: str, **args: Any) -> Any:
    resource = load(kind)
    return resource.apply(host, args, resource.diff(resource.read(host, args), args), report)


def test_pulled_by_digest_then_tagged_then_as_wanted(engine: FakeEngine, host: Any, report: Any) -> None:
    engine.registry = {REFERENCE: OTHER, f"{REGISTRY}/torch:old": DIGEST}  # the tag has moved since
    args = {"reference": REFERENCE, "digest": DIGEST}
    assert differences(host, "image", **args) == [
        {"path": REFERENCE, "before": None, "after": f"{REFERENCE}@{DIGEST}"}
    ]
    result = apply(host, report, "image", **args)
    assert result["registered"]["pinned"] is True
    assert differences(host, "image", **args) == []
    assert engine.image(REFERENCE)["RepoDigests"] == [f"{REGISTRY}/torch@{DIGEST}"]  # type: ignore[index]
    assert "downloading 406 MB of 1.2 GB" in report.lines


def test_a_check_asks_only_for_the_image(engine: FakeEngine, host: Any) -> None:
    engine.images["i"] = {"Id": "i", "RepoDigests": [f"{REGISTRY}/torch@{DIGEST}"], "RepoTags": [REFERENCE]}
    assert differences(host, "image", reference=REFERENCE, digest=DIGEST) == []
    assert [path for _, path, _ in engine.requests] == ["/_ping", f"/images/{REFERENCE}/json"]


def test_an_image_that_is_there_is_only_tagged(engine: FakeEngine, host: Any, report: Any) -> None:
    engine.images["i"] = {"Id": "i", "RepoDigests": [f"{REGISTRY}/torch@{DIGEST}"], "RepoTags": []}
    engine.images["j"] = {"Id": "j", "RepoDigests": [f"{REGISTRY}/torch@{OTHER}"], "RepoTags": [REFERENCE]}
    args = {"reference": f"{REFERENCE}@{DIGEST}"}
    assert differences(host, "image", **args)[0]["path"] == f"{REFERENCE} tag"
    apply(host, report, "image", **args)
    assert differences(host, "image", **args) == []
    assert not any(path == "/images/create" for _, path, _ in engine.requests)


def test_the_same_digest_of_another_repository_does_not_count(engine: FakeEngine, host: Any) -> None:
    engine.images["i"] = {
        "Id": "i",
        "RepoDigests": [f"evil.example.org/torch@{DIGEST}"],
        "RepoTags": [REFERENCE],
    }
    assert differences(host, "image", reference=REFERENCE, digest=DIGEST) != []


def test_without_a_digest_the_report_says_so(engine: FakeEngine, host: Any, report: Any) -> None:
    engine.registry = {REFERENCE: DIGEST}
    args = {"reference": REFERENCE, "digest": None}
    assert "digest not pinned" in differences(host, "image", **args)[0]["after"]
    assert apply(host, report, "image", **args)["registered"]["pinned"] is False
    assert differences(host, "image", **args) == []


def test_a_digest_the_registry_lacks_is_refused_naming_what_it_has(
    engine: FakeEngine, host: Any, report: Any
) -> None:
    engine.registry = {REFERENCE: OTHER}
    with pytest.raises(StepFailed, match=f"no {REFERENCE} with digest {DIGEST}; its {REFERENCE} is {OTHER}"):
        apply(host, report, "image", reference=REFERENCE, digest=DIGEST)
    assert engine.images == {}


@pytest.mark.parametrize(
    ("said", "words", "remedy"),
    [
        (
            f'Get "https://{REGISTRY}/v2/": x509: certificate signed by unknown authority',
            "does not trust the certificate",
            f"/etc/docker/certs.d/{REGISTRY}/ca.crt",
        ),
        ("toomanyrequests: You have reached your pull rate limit", "limits the number", "log in"),
        ("write /var/lib/docker/tmp/x: no space left on device", "disk_full", "df -h /var/lib/docker"),
        ("pull access denied for torch", "refuses these credentials", "username and password"),
        (f'Get "https://{REGISTRY}/v2/": dial tcp: lookup x: no such host', "cannot be reached", "DNS"),
        ("http: server gave HTTP response to HTTPS client", "plain HTTP", "TLS"),
        ("something new", "something new", "docker pull"),
    ],
)
def test_failed_pulls_say_what_to_do(
    engine: FakeEngine, host: Any, report: Any, said: str, words: str, remedy: str
) -> None:
    engine.pull_error = said
    with pytest.raises(StepFailed, match=words) as caught:
        apply(host, report, "image", reference=REFERENCE, digest=DIGEST)
    assert remedy in (caught.value.remedy or "")


def test_a_full_disk_is_named_by_its_place_and_nothing_else_is_removed(
    engine: FakeEngine, host: Any, report: Any, root: Path
) -> None:
    other = {"Id": "other", "RepoDigests": [f"{REGISTRY}/old@sha256:{'0' * 64}"], "RepoTags": []}
    engine.images["other"] = other
    engine.info = {"DockerRootDir": "/mnt/data/engine"}
    (root / "mnt/data/engine").mkdir(parents=True)
    engine.pull_error = (
        "failed to register layer: ApplyLayer exit status 1 stdout:  stderr: "
        "write /opt/conda/lib/libtorch_cuda.so: no space left on device"
    )
    with pytest.raises(StepFailed) as caught:
        apply(host, report, "image", reference=REFERENCE, digest=DIGEST)
    assert caught.value.what.startswith(f"disk_full: pulling {REFERENCE} filled /mnt/data/engine,")
    assert "free now" in caught.value.what
    assert "it is part of /" in caught.value.what
    assert "data-root" in (caught.value.remedy or "")
    changing = {(method, path) for method, path, _ in engine.requests if method in ("POST", "DELETE")}
    assert changing == {("POST", "/images/create")}
    assert engine.images == {"other": other}
    assert differences(host, "image", reference=REFERENCE, digest=DIGEST), "it does not count as present"


def test_a_store_on_a_disk_of_its_own_leaves_the_host_its_room(
    engine: FakeEngine, host: Any, report: Any, root: Path
) -> None:
    engine.info = {"DockerRootDir": "/store"}
    (root / "store").symlink_to("/proc")  # another file system
    engine.pull_error = "no space left on device"
    with pytest.raises(StepFailed, match="filled /store") as caught:
        apply(host, report, "image", reference=REFERENCE, digest=DIGEST)
    assert "part of /" not in caught.value.what


def test_credentials_go_in_a_header_and_nowhere_else(
    engine: FakeEngine, host: Any, report: Any, root: Path
) -> None:
    engine.registry, engine.credentials = {REFERENCE: DIGEST}, ("lab", "hunter2")
    host.secrets["p"] = "hunter2"
    wrong = {"username": "lab", "password": "x"}
    with pytest.raises(StepFailed, match="refuses these credentials"):
        apply(host, report, "image", reference=REFERENCE, digest=DIGEST, auth=wrong)
    right = {"username": "lab", "password": {"$secret": "p"}}
    apply(host, report, "image", reference=REFERENCE, digest=DIGEST, auth=right)
    assert differences(host, "image", reference=REFERENCE, digest=DIGEST, auth=right) == []
    assert [path for path in root.rglob("*") if path.is_file()] == []


def test_a_cancelled_pull_is_cancelled(engine: FakeEngine, host: Any, report: Any) -> None:
    host._cancelled = lambda: True
    with pytest.raises(StepCancelled):
        apply(host, report, "image", reference=REFERENCE, digest=DIGEST)


def test_without_an_engine_the_state_cannot_be_told(host: Any) -> None:
    with pytest.raises(StepFailed, match="no Docker socket") as caught:
        differences(host, "image", reference=REFERENCE, digest=DIGEST)
    assert "systemctl status docker" in (caught.value.remedy or "")


def test_removing_an_image(engine: FakeEngine, host: Any, report: Any) -> None:
    engine.images["i"] = {"Id": "i", "RepoDigests": [], "RepoTags": [REFERENCE]}
    apply(host, report, "image", reference=REFERENCE, state="absent")
    assert differences(host, "image", reference=REFERENCE, state="absent") == []


def test_forecast_behind_an_engine_that_is_only_now_installed() -> None:
    image = load("image")
    args = {"reference": REFERENCE, "digest": DIGEST}
    assert image.forecast(args, Provides(engine=True, packages=["docker.io"])) == "would_change"
    assert image.forecast(args, Provides(engine=True, units=["docker.service"])) == "known_after_apply"
    assert image.requires(args).engine


def test_sizes_in_words() -> None:
    assert [size_text(size) for size in (999, 812_000_000, 1_234_000_000)] == ["0 kB", "812 MB", "1.2 GB"]


# --- registry_login

LOGIN = {"registry": REGISTRY, "username": "lab", "password": {"$secret": "p"}}


def test_a_login_that_does_not_persist_has_no_state_and_asks_nobody(engine: FakeEngine, host: Any) -> None:
    host.secrets["p"] = "hunter2"
    assert differences(host, "registry_login", **LOGIN, persist=False) == []
    assert engine.requests == []


def test_a_persistent_login_is_verified_stored_and_kept_beside_others(
    engine: FakeEngine, host: Any, report: Any, root: Path
) -> None:
    engine.credentials = ("lab", "hunter2")
    host.secrets["p"] = "wrong"
    path = root / "root/.docker/config.json"
    with pytest.raises(StepFailed, match="does not take these credentials"):
        apply(host, report, "registry_login", **LOGIN, persist=True)
    assert not path.exists()
    path.parent.mkdir(parents=True)
    path.write_text('{"auths": {"other": {"auth": "eA=="}}, "proxies": {}}')
    host.secrets["p"] = "hunter2"
    shown = differences(host, "registry_login", **LOGIN, persist=True)
    assert shown[0]["after"] == "********"
    apply(host, report, "registry_login", **LOGIN, persist=True)
    stored = json.loads(path.read_text())
    assert stored["auths"]["other"] == {"auth": "eA=="}
    assert base64.b64decode(stored["auths"][REGISTRY]["auth"]) == b"lab:hunter2"
    assert stored["proxies"] == {}
    assert path.stat().st_mode & 0o777 == 0o600
    engine.requests.clear()
    assert differences(host, "registry_login", **LOGIN, persist=True) == []
    assert engine.requests == []
    os.chmod(path, 0o644)
    assert differences(host, "registry_login", **LOGIN, persist=True)[0]["before"] == "0644"


def test_the_authority_is_put_where_the_engine_looks(host: Any, report: Any, root: Path) -> None:
    host.secrets["p"] = "x"
    args = {**LOGIN, "persist": False, "ca": "/etc/ssl/site.crt"}
    with pytest.raises(StepFailed, match=r"no /etc/ssl/site\.crt on this host"):
        differences(host, "registry_login", **args)
    (root / "etc/ssl").mkdir(parents=True)
    (root / "etc/ssl/site.crt").write_text("CA")
    wanted = f"/etc/docker/certs.d/{REGISTRY}/ca.crt"
    assert differences(host, "registry_login", **args) == [
        {"path": wanted, "before": None, "after": "/etc/ssl/site.crt"}
    ]
    apply(host, report, "registry_login", **args)
    assert (root / wanted[1:]).read_text() == "CA"
    assert differences(host, "registry_login", **args) == []


def test_a_configuration_that_does_not_parse_is_not_replaced(
    engine: FakeEngine, host: Any, root: Path
) -> None:
    host.secrets["p"] = "x"
    path = root / "root/.docker/config.json"
    path.parent.mkdir(parents=True)
    path.write_text("{broken")
    with pytest.raises(StepFailed, match="not valid JSON"):
        differences(host, "registry_login", **LOGIN, persist=True)
    assert path.read_text() == "{broken"


def test_a_credential_helper_is_respected(engine: FakeEngine, host: Any, report: Any, root: Path) -> None:
    engine.credentials = ("lab", "x")
    host.secrets["p"] = "x"
    path = root / "root/.docker/config.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"credsStore": "pass"}')
    with pytest.raises(StepFailed, match="helper"):
        apply(host, report, "registry_login", **LOGIN, persist=True)


def test_the_digest_of_a_registry_can_be_asked(engine: FakeEngine, host: Any) -> None:
    engine.registry = {REFERENCE: DIGEST}
    assert Engine(engine.path).distribution(REFERENCE, None)["Descriptor"]["digest"] == DIGEST
