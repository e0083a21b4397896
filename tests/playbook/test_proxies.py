"""Questions that go out of the host are asked through the proxies of an earlier task, with nothing secret in sight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fleet.core.secret import Secret
from fleet.playbook.compile import HostCompiler
from fleet.playbook.load import load_playbook
from fleet.run.control import Control
from fleet.run.link import Link
from tests.facts import healthy_facts

URL = "http://fleet:s3cret-pw@proxy.example.net:3128"
BOOK = """\
- hosts: all
  tasks:
    - package: {name: before=1}
    - proxy: {http: "{{ http_proxy }}", no_proxy: "{{ no_proxy }}"}
    - package: {name: after=1}
"""


def queries(tmp_path: Path, **variables: Any) -> list[dict[str, Any]]:
    book = tmp_path / "book.yaml"
    book.write_text(BOOK)
    compiler = HostCompiler(load_playbook(book).plays[0], "gpu01", {"no_proxy": [], **variables}, "7f3a")
    return compiler.queries(healthy_facts())


def versions(asked: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["names"][0]: one.get("proxies") for one in asked if one["kind"] == "package_versions"}


def test_what_comes_after_the_task_is_asked_through_its_proxies(tmp_path: Path) -> None:
    asked = queries(tmp_path, http_proxy="http://p:3128", no_proxy=".lab, mirror.lab")
    through = {"http": "http://p:3128", "https": "http://p:3128", "no_proxy": [".lab", "mirror.lab"]}
    assert versions(asked) == {"before": None, "after": through}


def test_without_proxies_nothing_is_said_of_them(tmp_path: Path) -> None:
    assert versions(queries(tmp_path, http_proxy=None)) == {"before": None, "after": None}
    assert versions(queries(tmp_path, http_proxy="")) == {"before": None, "after": None}


def test_a_login_travels_beside_the_questions(tmp_path: Path) -> None:
    sent: dict[str, Any] = {}

    class Agent:
        alive = True

        def request(self, method: str, params: Any, **options: Any) -> Any:
            sent.update(params, **options)
            return {"answers": {}}

    link = Link(None, lambda settings: Agent(), Control())  # type: ignore[arg-type, return-value]
    link.answers(queries(tmp_path, http_proxy=Secret(URL, "http_proxy")), 5)
    assert "s3cret" not in json.dumps(sent["queries"])
    assert set(sent["secrets"].values()) == {URL}
    assert sent["secrets_in"] is True
