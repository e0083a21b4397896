"""``gather_facts: false``: fewer facts are read, and nothing that needs the others may be in the play."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.core.errors import InputError
from fleet.playbook.load import load_playbook
from fleet.playbook.model import LEAST_FACTS


def test_a_play_reads_all_facts_unless_it_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "book.yaml").write_text(
        "- hosts: all\n  tasks: []\n- hosts: all\n  gather_facts: false\n  tasks: []\n"
    )
    first, second = load_playbook(tmp_path / "book.yaml").plays
    assert first.fact_groups is None
    assert second.fact_groups == LEAST_FACTS


@pytest.mark.parametrize("task", ["preflight: {}", "docker_engine: {}", "reboot: {}", "facts_report: {}"])
def test_a_task_that_decides_by_facts_is_refused_without_them(task: str, tmp_path: Path) -> None:
    (tmp_path / "book.yaml").write_text(f"- hosts: all\n  gather_facts: false\n  tasks:\n    - {task}\n")
    with pytest.raises(InputError, match=r"book\.yaml:4:7: .* gather_facts: false") as caught:
        load_playbook(tmp_path / "book.yaml")
    assert len(caught.value.problems) == 1
