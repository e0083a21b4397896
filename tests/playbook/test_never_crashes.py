"""Whatever stands in a playbook, the answer is a playbook or an InputError: never a traceback."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.core.errors import InputError
from fleet.modules import known_names, load
from fleet.playbook.compile import HostCompiler
from fleet.playbook.load import load_playbook
from fleet.playbook.words import BLOCK_KEYS, PLAY_KEYS, REFUSED, TASK_KEYS
from tests.facts import healthy_facts

FACTS = healthy_facts()
TEXTS = [
    "all", "/x", "0644", "present", "started", "restart", "50%", "x=1", "sha256:1", "-1", "'", "",
    "{{ a }}", "{{ b.c }}", "{{ r.stdout }}", "{{ [1, 2] }}", "{{", "{% if %}", "{{ a | nope }}",
    "r is changed", "r.rc == 0", "reboot_required", "a ==",
]  # fmt: skip
NUMBERS = st.integers(-2, 5000) | st.floats(allow_nan=False)
SCALARS = st.sampled_from(TEXTS) | st.none() | st.booleans() | NUMBERS | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(TEXTS), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = sorted({name for word in known_names() for name in load(word).arguments})
MODULE = st.tuples(
    st.sampled_from(known_names()), SCALARS | st.dictionaries(st.sampled_from(ARGUMENTS), VALUES, max_size=5)
)
WORDS = st.dictionaries(st.sampled_from([*TASK_KEYS, *BLOCK_KEYS, *sorted(REFUSED)]), VALUES, max_size=4)
TASK = st.builds(lambda words, module: {**words, module[0]: module[1]}, WORDS, MODULE) | WORDS | VALUES
PLAY = st.builds(
    lambda words, tasks: {"hosts": "all", **words, "tasks": tasks},
    st.dictionaries(st.sampled_from(PLAY_KEYS), VALUES, max_size=3),
    st.lists(TASK, max_size=4),
)


def loaded_and_compiled(document: Any) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "site.yaml"
        path.write_text(yaml.safe_dump(document, allow_unicode=True))
        with suppress(InputError):
            for play in load_playbook(path).plays:
                compiler = HostCompiler(play, "gpu01", {"a": 1, "b": {"c": "x"}}, "0123456789ab")
                while not compiler.done:
                    answers = {query["id"]: {"ok": False, "error": "no"} for query in compiler.queries(FACTS)}
                    segment = compiler.segment(FACTS, answers)
                    compiler.feed({"step": step["id"], "status": "changed"} for step in segment.plan["steps"])


@settings(max_examples=300, deadline=None)
@given(st.lists(PLAY, min_size=1, max_size=2))
def test_playbooks_of_known_words(document: Any) -> None:
    loaded_and_compiled(document)


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_anything(document: Any) -> None:
    loaded_and_compiled(document)


VALID = st.sampled_from(
    [
        {"command": "id", "register": "r"},
        {"command": "echo {{ item }}", "loop": [1, 2], "register": "r"},
        {"command": "echo {{ r.stdout | default('') }}", "register": "s"},
        {"command": "id", "when": "r is changed", "register": "r"},
        {"debug": {"msg": "{{ r | default(1) }}"}},
        {"debug": {"msg": "changed"}, "when": "r is defined and r is changed"},
        {"set_fact": {"r": {"changed": True}}},
        {"reboot": None},
        {"reboot": None, "when": "reboot_required"},
        {"fail": {"msg": "no"}, "when": "a == 2", "ignore_errors": True},
        {"assert": {"that": "a == 1"}, "register": "r"},
        {"meta": "flush_handlers"},
        {"copy": {"dest": "/x", "content": "{{ a }}"}, "notify": "restart"},
        {"docker_engine": {"settings": {"debug": True}}, "register": "r"},
        {"file": {"path": "/x", "state": "directory"}, "when": ["reboot_required", "a == 1"]},
    ]
)
HANDLER = {"name": "restart", "service": {"name": "ssh", "state": "restarted"}}


@settings(max_examples=200, deadline=None)
@given(st.lists(VALID, max_size=8))
def test_every_mixture_of_tasks_ends_and_names_each_step_once(tasks: list[Any]) -> None:
    """Any order of registering, asking, rebooting and deciding compiles to the end, or is an input error."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "site.yaml"
        path.write_text(yaml.safe_dump([{"hosts": "all", "tasks": tasks, "handlers": [HANDLER]}]))
        compiler = HostCompiler(load_playbook(path).plays[0], "gpu01", {"a": 1}, "0123456789ab")
        seen: list[str] = []
        segments = 0
        with suppress(InputError):  # r may be asked for before it is registered
            while not compiler.done:
                segment = compiler.segment(FACTS, {})
                seen += [step["id"] for step in segment.plan["steps"]]
                compiler.feed({"step": step, "status": "changed", "exit_code": 0} for step in seen)
                segments += 1
                assert segments <= 2 * len(tasks) + 1
        assert len(seen) == len(set(seen))
