"""Plays become plans: segments, conditions, loops, handlers, tags, variables and secrets."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.protocol import canonical, plan_hash
from fleet.core.errors import InputError
from fleet.core.secret import Secret
from fleet.playbook.compile import CompiledSegment, HostCompiler, RunOptions
from fleet.playbook.load import load_playbook
from tests.facts import healthy_facts, healthy_gpu_facts

FACTS = healthy_facts()
Compile = Callable[..., HostCompiler]


@pytest.fixture
def play(tmp_path: Path) -> Compile:
    """Compile the tasks given as YAML, for gpu01."""

    def compiler(tasks: str, variables: Mapping[str, Any] | None = None, **options: Any) -> HostCompiler:
        path = tmp_path / "site.yaml"
        text = tasks if tasks.lstrip().startswith("- hosts") else f"- hosts: all\n  tasks:\n{tasks}"
        path.write_text(text)
        return HostCompiler(
            load_playbook(path).plays[0], "gpu01", variables or {}, "7f3a", RunOptions(**options)
        )

    return compiler


def only(compiler: HostCompiler, facts: Mapping[str, Any] = FACTS) -> CompiledSegment:
    """The segment of a play that has just one."""
    segment = compiler.segment(facts, {})
    assert segment.last
    assert compiler.done
    return segment


def ids(segment: CompiledSegment) -> list[str]:
    return [step["id"] for step in segment.plan["steps"]]


def result(step: str, status: str = "changed", **more: Any) -> dict[str, Any]:
    return {"kind": "result", "step": step, "status": status, **more}


class TestPlans:
    def test_same_inputs_same_bytes(self, play: Compile) -> None:
        text = (
            "    - copy: {dest: /x, content: '{{ b }} {{ facts.os.id }}'}\n"
            "    - user: {name: dev, groups: [a, b]}\n"
        )
        first = only(play(text, {"a": 1, "b": 2}))
        second = only(play(text, {"b": 2, "a": 1}), copy.deepcopy(FACTS))
        assert canonical(first.plan) == canonical(second.plan)
        assert plan_hash(first.plan) == plan_hash(second.plan)

    def test_check_and_diff_do_not_change_a_plan(self, play: Compile) -> None:
        text = "    - file: {path: /x, state: directory}\n"
        assert only(play(text)).plan == only(play(text, check=True, diff=True)).plan

    def test_steps_carry_what_the_task_says(self, play: Compile) -> None:
        segment = only(
            play(
                """
- hosts: all
  become_user: dev
  tasks:
    - name: Say {{ word }}
      command: echo {{ word }}
      register: said
      ignore_errors: true
      timeout: 30
      notify: after
  handlers:
    - {name: after, command: "true"}
""",
                {"word": "hello"},
            )
        )
        step, handler = segment.plan["steps"]
        assert step["task"] == "Say hello"
        assert step["args"]["argv"] == ["echo", "hello"]
        assert step["become_user"] == "dev"
        assert (step["register"], step["ignore_errors"], step["deadline_s"]) == ("said", True, 30.0)
        assert step["notify"] == ["after"]
        assert handler["handler"] == "after"

    def test_become_false_is_the_user_who_logs_in(self, play: Compile) -> None:
        text = "    - {command: id, become: false}\n"
        assert only(play(text, {"ansible_user": "anna"})).plan["steps"][0]["become_user"] == "anna"
        assert "become_user" not in only(play(text, {"ansible_user": "root"})).plan["steps"][0]

    def test_steps_of_two_plays_are_numbered_through(self, tmp_path: Path) -> None:
        path = tmp_path / "site.yaml"
        path.write_text("- hosts: a\n  tasks: [{command: id}]\n- hosts: b\n  tasks: [{command: id}]\n")
        first, second = load_playbook(path).plays
        one = HostCompiler(first, "gpu01", {}, "7f3a", last_play=False)
        assert not only(one).plan["last"]
        two = HostCompiler(second, "gpu01", {}, "7f3a", first_segment=one.next_segment, state=one.state)
        plan = only(two).plan
        assert (plan["segment"], plan["last"], plan["steps"][0]["id"]) == (2, True, "2.command.command")


class TestVariables:
    def test_precedence_from_low_to_high(self, play: Compile) -> None:
        text = """
- hosts: all
  defaults: {a: defaults, b: defaults}
  vars: {c: play, d: play, e: play}
  tasks:
    - set_fact: {e: set, f: set}
    - debug: {msg: "{{ a }} {{ b }} {{ c }} {{ d }} {{ e }} {{ f }}"}
      vars: {d: task}
"""
        segment = only(play(text, {"b": "inventory", "c": "inventory"}, extra_vars={"f": "extra"}))
        assert segment.controller_results[-1].text == "defaults inventory play task set extra"

    def test_a_variable_that_is_not_used_is_not_looked_at(self, play: Compile) -> None:
        class Lazy(dict[str, Any]):
            def __getitem__(self, name: str) -> Any:
                assert name != "expensive"
                return super().__getitem__(name)

        segment = only(play("    - debug: {msg: '{{ a }}'}\n", Lazy(a="{{ b }}", b=1, expensive="secret")))
        assert segment.controller_results[0].text == "1"

    def test_names_of_ansible_facts(self, play: Compile) -> None:
        text = (
            "    - debug: {msg: '{{ ansible_distribution }} {{ ansible_os_family }}"
            " {{ ansible_distribution_release }} {{ ansible_hostname }} {{ ansible_architecture }}"
            " {{ ansible_kernel }} {{ inventory_hostname }}'}\n"
        )
        (said,) = only(play(text)).controller_results
        assert said.text == "Debian Debian bookworm gpu01 x86_64 6.1.0-28-amd64 gpu01"

    def test_text_from_a_host_is_never_a_template(self, play: Compile) -> None:
        facts = {**FACTS, "identity": {"hostname": "{{ password }}"}}
        segment = only(
            play("    - debug: {msg: '{{ facts.identity.hostname }}'}\n", {"password": "x"}), facts
        )
        assert segment.controller_results[0].text == "{{ password }}"

    def test_an_undefined_name_is_an_error_where_it_stands(self, play: Compile) -> None:
        with pytest.raises(InputError) as raised:
            play("    - copy:\n        dest: /x\n        content: '{{ prot }}'\n", {"port": 1}).segment(
                FACTS, {}
            )
        (problem,) = raised.value.problems
        assert problem.position is not None
        assert (problem.position.line, problem.position.column) == (5, 18)
        assert "'prot' is undefined; did you mean port?" in problem.message

    def test_a_rendered_value_is_checked_like_a_written_one(self, play: Compile) -> None:
        with pytest.raises(InputError, match=r"site.yaml:3:20: path must be an absolute path"):
            play("    - file: {path: '{{ p }}', state: directory}\n", {"p": "relative"}).segment(FACTS, {})

    def test_omit_leaves_an_argument_out(self, play: Compile) -> None:
        (step,) = only(play("    - copy: {dest: /x, content: a, mode: '{{ m | default(omit) }}'}\n")).plan[
            "steps"
        ]
        assert "mode" not in step["args"]

    def test_templates_and_files_next_to_the_playbook(self, play: Compile, tmp_path: Path) -> None:
        (tmp_path / "templates").mkdir()
        (tmp_path / "templates" / "motd.j2").write_text("welcome to {{ inventory_hostname }}\n")
        (tmp_path / "files").mkdir()
        (tmp_path / "files" / "blob").write_bytes(b"\xff\x00")
        text = "    - template: {src: motd.j2, dest: /etc/motd}\n    - copy: {src: blob, dest: /blob}\n"
        first, second = only(play(text)).plan["steps"]
        assert first["args"]["content"] == "welcome to gpu01\n"
        assert second["args"]["content_base64"] == "/wA="

    def test_a_file_too_big_for_a_plan(self, play: Compile, tmp_path: Path) -> None:
        (tmp_path / "blob").write_bytes(b"x" * 8_000_001)
        with pytest.raises(InputError, match=r"site.yaml:3:\d+: src is 8.0 MB"):
            play("    - copy: {src: blob, dest: /blob}\n").segment(FACTS, {})

    def test_a_template_does_not_see_what_is_set_after_it(self, play: Compile, tmp_path: Path) -> None:
        (tmp_path / "a.j2").write_text("{{ a }}")
        text = (
            "    - set_fact: {a: 1}\n    - template: {src: a.j2, dest: /one}\n"
            "    - set_fact: {a: 2}\n    - template: {src: a.j2, dest: /two}\n"
        )
        assert [step["args"]["content"] for step in only(play(text)).plan["steps"]] == ["1", "2"]

    def test_an_error_in_a_template_names_the_template(self, play: Compile, tmp_path: Path) -> None:
        (tmp_path / "motd.j2").write_text("{{ nobody }}")
        with pytest.raises(InputError, match=r"motd\.j2:1:1: .*nobody"):
            play("    - template: {src: motd.j2, dest: /etc/motd}\n").segment(FACTS, {})


class TestConditionsAndLoops:
    def test_facts_decide_on_the_controller(self, play: Compile) -> None:
        segment = only(
            play(
                "    - {command: a, when: facts.os.id == 'debian'}\n"
                "    - {command: b, when: [ansible_os_family == 'Debian', facts.cpus > 99]}\n"
            )
        )
        assert ids(segment) == ["1.command.command"]
        (skipped,) = segment.controller_results
        assert (skipped.kind, skipped.text) == ("skipped", "when: facts.cpus > 99")

    def test_loops_are_expanded(self, play: Compile) -> None:
        segment = only(
            play(
                """
    - name: User
      user: {name: "{{ who.name }}", uid: "{{ 1000 + number }}"}
      loop: "{{ people }}"
      loop_control: {loop_var: who, index_var: number, label: "{{ who.name }}"}
      when: who.name != 'bob'
""",
                {"people": [{"name": "anna"}, {"name": "bob"}, {"name": "cleo"}]},
            )
        )
        assert ids(segment) == ["1#1.user.user", "1#3.user.user"]
        assert [step["args"]["uid"] for step in segment.plan["steps"]] == [1000, 1002]
        assert segment.plan["steps"][1]["task"] == "User (cleo)"

    def test_a_false_condition_spares_the_loop(self, play: Compile) -> None:
        segment = only(play("    - {command: 'echo {{ item }}', loop: '{{ nothing }}', when: false}\n"))
        assert ids(segment) == []

    def test_a_result_nobody_registered_is_named(self, play: Compile) -> None:
        with pytest.raises(InputError, match=r"site.yaml:3:\d+: .*'r' is undefined"):
            play("    - {command: id, when: r is changed}\n").segment(FACTS, {})

    def test_a_loop_over_text_is_an_error(self, play: Compile) -> None:
        with pytest.raises(InputError, match=r"site.yaml:3:\d+: loop must give a list, not text"):
            play("    - {command: 'echo {{ item }}', loop: '{{ words }}'}\n", {"words": "a b"}).segment(
                FACTS, {}
            )

    def test_secrets_in_a_loop_are_not_shown(self, play: Compile) -> None:
        text = "    - {copy: {dest: '/x/{{ item.n }}', content: '{{ item.s }}'}, loop: '{{ all }}'}\n"
        segment = only(play(text, {"all": [{"n": "a", "s": Secret("hunter22", "s")}]}))
        assert "hunter22" not in canonical(segment.plan)
        assert segment.secrets["1#1.copy.file:content"].reveal() == "hunter22"


class TestSegments:
    def test_a_closed_condition_stays_on_the_host(self, play: Compile) -> None:
        segment = only(
            play(
                "    - {command: one, register: r}\n"
                "    - {command: two, when: r is changed}\n"
                "    - {command: three, when: [r.rc == 0, facts.os.id == 'debian']}\n"
                "    - {command: four, when: [r.rc == 0, facts.os.id == 'other']}\n"
            )
        )
        _, two, three = segment.plan["steps"]
        assert two["when"] == {"changed": "1.command.command"}
        assert three["when"] == {"exit_code": {"step": "1.command.command", "in": [0]}}

    @pytest.mark.parametrize(
        "task",
        [
            "{command: 'echo {{ r.stdout }}'}",
            "{command: id, when: r.stdout == 'x'}",
            "{command: 'echo {{ item }}', loop: '{{ r.stdout_lines }}'}",
            "{command: 'echo {{ v }}', vars: {v: '{{ r.stdout }}'}}",
            "{command: 'echo {{ through }}'}",
            "{debug: {var: r.stdout}}",
            "{assert: {that: [\"r.stdout == 'x'\"]}}",
        ],
    )
    def test_a_task_that_needs_a_result_waits_for_it(self, play: Compile, task: str) -> None:
        compiler = play(
            f"    - {{command: one, register: r}}\n    - {task}\n",
            {"through": "{{ again }}", "again": "{{ r.stdout }}"},
        )
        segment = compiler.segment(FACTS, {})
        assert ids(segment) == ["1.command.command"]
        assert not segment.last
        assert not segment.plan["last"]
        compiler.feed([result("1.command.command", exit_code=0, stdout="x\n", stderr="")])
        assert compiler.segment(FACTS, {}).last

    def test_the_result_has_ansibles_words(self, play: Compile) -> None:
        compiler = play(
            "    - {command: one, register: r}\n"
            "    - debug: {msg: '{{ r.rc }} {{ r.stdout }} {{ r.stdout_lines | length }}"
            " {{ r is changed }}'}\n"
        )
        compiler.segment(FACTS, {})
        compiler.feed([result("1.command.command", exit_code=3, stdout="a\nb\n", stderr="")])
        assert only(compiler).controller_results[0].text == "3 a\nb 2 True"

    def test_output_of_a_host_is_never_a_template(self, play: Compile) -> None:
        compiler = play(
            "    - {command: one, register: r}\n    - {copy: {dest: /x, content: '{{ r.stdout }}'}}\n"
        )
        compiler.segment(FACTS, {})
        compiler.feed([result("1.command.command", exit_code=0, stdout="{{ password }}")])
        assert only(compiler).plan["steps"][0]["args"]["content"] == "{{ password }}"

    def test_results_of_a_loop(self, play: Compile) -> None:
        compiler = play(
            "    - {command: 'echo {{ item }}', loop: [a, b], register: r}\n"
            "    - {debug: {msg: '{{ item.item }}={{ item.stdout }}'}, loop: '{{ r.results }}'}\n"
        )
        compiler.segment(FACTS, {})
        compiler.feed([result(f"1#{n}.command.command", exit_code=0, stdout=f"o{n}") for n in (1, 2)])
        assert [said.text for said in only(compiler).controller_results] == ["a=o1", "b=o2"]

    def test_a_skipped_task_is_known_at_once(self, play: Compile) -> None:
        segment = only(
            play(
                "    - {command: one, register: r, when: false}\n"
                "    - {command: two, when: r is skipped}\n"
                "    - {command: three, when: r is changed}\n"
            )
        )
        assert ids(segment) == ["2.command.command"]

    def test_a_reboot_ends_the_segment_and_flushes_first(self, play: Compile) -> None:
        compiler = play(
            """
- hosts: all
  tasks:
    - copy: {dest: /x, content: a}
      notify: restart
    - reboot:
    - command: after
  handlers:
    - {name: restart, service: {name: ssh, state: restarted}}
"""
        )
        first = compiler.segment(FACTS, {})
        assert ids(first) == ["1.copy.file", "4~1.service.service", "2.reboot.reboot"]
        assert not first.last
        second = compiler.segment(FACTS, {})
        assert ids(second) == ["3.command.command", "4.service.service"]
        assert second.last

    def test_a_reboot_that_a_module_adds_ends_the_segment_too(self, play: Compile) -> None:
        compiler = play(
            "    - nvidia_driver: {version: 580.159.03, repository: {trusted: true}, reboot: if_needed}\n"
            "    - command: after\n"
        )
        facts = healthy_gpu_facts({"packages.installed.libnvidia-nscq": "580.159.03-1"})
        first = compiler.segment(facts, {})
        assert ids(first)[-1] == "1.nvidia_driver.reboot"
        assert not first.last
        services = [step for step in first.plan["steps"] if step["id"].endswith(".fabric_manager")]
        assert services[0]["when"] == {"reboot_required": False}
        second = compiler.segment(facts, {})
        assert ids(second) == ["2.command.command"]
        assert second.last

    def test_conditions_of_the_task_are_added_to_those_of_a_step(self, play: Compile) -> None:
        compiler = play(
            "    - {command: one, register: r}\n"
            "    - nvidia_driver: {version: 580.159.03, repository: {trusted: true}, reboot: if_needed}\n"
            "      when: r is changed\n"
        )
        facts = healthy_gpu_facts({"packages.installed.libnvidia-nscq": "580.159.03-1"})
        compiler.segment(facts, {})
        compiler.feed([result("1.command.command")])
        steps = compiler.segment(facts, {}).plan["steps"]
        assert [step["when"] for step in steps if "when" in step] == 2 * [{"reboot_required": False}]

    def test_facts_are_fresh_in_the_next_segment(self, play: Compile) -> None:
        compiler = play("    - reboot:\n    - {debug: {msg: '{{ ansible_kernel }}'}}\n")
        compiler.segment(FACTS, {})
        newer = {**FACTS, "kernel": {"release": "6.1.0-29-amd64"}}
        assert only(compiler, newer).controller_results[0].text == "6.1.0-29-amd64"

    def test_handlers_are_flushed_where_the_play_says(self, play: Compile) -> None:
        segment = only(
            play(
                """
- hosts: all
  tasks:
    - {copy: {dest: /x, content: a}, notify: restart}
    - meta: flush_handlers
    - command: after
  handlers:
    - {name: restart, service: {name: ssh, state: restarted}}
"""
            )
        )
        assert ids(segment) == [
            "1.copy.file",
            "4~1.service.service",
            "3.command.command",
            "4.service.service",
        ]

    def test_reboot_required_is_asked_of_the_host_once_something_was_done(self, play: Compile) -> None:
        segment = only(
            play("    - {apt: {name: linux-image-amd64}}\n    - {command: id, when: reboot_required}\n")
        )
        assert segment.plan["steps"][1]["when"] == {"reboot_required": True}

    @pytest.mark.parametrize(("required", "steps"), [(True, ["1.command.command"]), (False, [])])
    def test_before_that_the_facts_say_it(self, play: Compile, required: bool, steps: list[str]) -> None:
        facts = {**FACTS, "reboot_required": {"required": required}}
        assert ids(only(play("    - {command: id, when: reboot_required}\n"), facts)) == steps

    def test_a_reboot_that_is_not_required_needs_no_leave(self, play: Compile) -> None:
        facts = copy.deepcopy(FACTS)
        facts["engine"]["containers"] = [{"name": "train-17", "state": "running", "labels": {}}]
        compiler = play("    - command: one\n    - {reboot: , when: reboot_required}\n    - command: two\n")
        assert ids(compiler.segment(facts, {})) == ["1.command.command"]
        after = compiler.segment(facts, {})
        assert ids(after) == ["3.command.command"]
        assert after.controller_results[0].kind == "skipped"

    @pytest.mark.parametrize(
        "task",
        ["debug: {msg: it changed}", "fail: {msg: it changed}", "set_fact: {a: 1}", "docker_engine: {}"],
    )
    @pytest.mark.parametrize("condition", ["r is changed", "reboot_required"])
    def test_what_is_decided_here_waits_for_its_condition(
        self, play: Compile, task: str, condition: str
    ) -> None:
        compiler = play(f"    - {{command: one, register: r}}\n    - {task}\n      when: {condition}\n")
        assert not compiler.segment(FACTS, {}).last
        compiler.feed([result("1.command.command", "ok")])
        (said,) = only(compiler).controller_results
        assert (said.kind, said.text) == ("skipped", f"when: {condition}")

    def test_registered_again_the_later_task_counts(self, play: Compile) -> None:
        segment = only(
            play(
                "    - {command: one, register: r}\n"
                "    - {command: two, register: r}\n"
                "    - {command: three, when: r is changed}\n"
            )
        )
        assert segment.plan["steps"][2]["when"] == {"changed": "2.command.command"}


class TestStops:
    def test_a_failing_assertion_first_touches_nothing(self, play: Compile) -> None:
        segment = only(play("    - assert: {that: facts.cpus > 99}\n    - command: id\n"))
        assert segment.plan["steps"] == []
        (said,) = segment.controller_results
        assert (said.kind, said.text) == ("failed", "this does not hold: facts.cpus > 99")

    def test_what_comes_before_a_stop_is_done_first(self, play: Compile) -> None:
        compiler = play("    - command: one\n    - fail: {msg: enough}\n    - command: never\n")
        first = compiler.segment(FACTS, {})
        assert (ids(first), first.last, first.controller_results) == (["1.command.command"], False, ())
        second = only(compiler)
        assert second.plan["steps"] == []
        assert second.controller_results[0].text == "enough"

    def test_a_task_is_cut_off_with_its_whole_loop(self, play: Compile) -> None:
        compiler = play(
            "    - command: one\n    - {package: {name: '{{ item }}'}, loop: [curl, jq=9], register: r}\n"
        )
        queries = compiler.queries(FACTS)
        answers = {query["id"]: {"ok": True, "value": {"jq": ["1.7"]}} for query in queries}
        assert ids(compiler.segment(FACTS, answers)) == ["1.command.command"]
        stopped = compiler.segment(FACTS, answers)
        assert stopped.plan["steps"] == []
        assert stopped.controller_results[0].text.startswith("pin_not_available: jq 9")

    def test_a_pin_that_is_gone_is_told_before_what_comes_before_it_is_done(self, play: Compile) -> None:
        compiler = play("    - group: {name: ops}\n    - docker_engine: {version: '99'}\n")
        queries = compiler.queries(FACTS)
        answers = {
            query["id"]: {"ok": True, "value": {name: ["1.7"] for name in query["names"]}}
            for query in queries
        }
        (said,) = compiler.pins_refused(FACTS, answers)
        assert said.text == "pin_not_available: docker.io 99 is in no repository of this host; offered: 1.7"
        assert ids(compiler.segment(FACTS, answers)) == ["1.group.group"], "by itself it is said afterwards"

    def test_every_driver_pin_is_asked_of_its_own_repository(self, play: Compile) -> None:
        driver = (
            "{version: '580.126.09', repository: {base_url: 'https://mirror.example.org', trusted: true}}"
        )
        compiler = play(f"    - command: prepare-this-site\n    - nvidia_driver: {driver}\n")
        bare = healthy_gpu_facts({"driver.loaded": None, "packages.installed": {}})
        (query, *_) = compiler.queries(bare)
        offered = {name: ["580.126.20-1"] for name in query["names"]}
        (said,) = compiler.pins_refused(bare, {query["id"]: {"ok": True, "value": offered}})
        assert said.text.startswith("pin_not_available: ")
        assert said.text.endswith(" 580.126.09 is in no repository asked; offered: 580.126.20-1")

    def test_an_ignored_failure_does_not_stop(self, play: Compile) -> None:
        segment = only(play("    - {fail: {msg: never mind}, ignore_errors: true}\n    - command: id\n"))
        assert ids(segment) == ["2.command.command"]
        assert not segment.controller_results[0].stops

    def test_a_question_the_host_cannot_answer_stops_it(self, play: Compile) -> None:
        compiler = play("    - file: {path: /x, state: absent}\n")
        (query,) = compiler.queries(FACTS)
        assert query == {"id": "1.file.path", "kind": "path", "path": "/x"}
        unanswered = {"ok": False, "error": "permission denied", "remedy": "ask whoever may"}
        segment = compiler.segment(FACTS, {"1.file.path": unanswered})
        assert segment.plan["steps"] == []
        assert "permission denied" in segment.controller_results[0].text
        assert segment.controller_results[0].remedy == "ask whoever may"


class TestCheckMode:
    def test_what_needs_an_unknown_result_is_known_after_apply(self, play: Compile) -> None:
        compiler = play(
            "    - {command: one, register: r}\n"
            "    - {command: 'echo {{ r.stdout }}', register: s}\n"
            "    - {debug: {var: s.stdout}}\n"
            "    - command: three\n",
            check=True,
        )
        compiler.segment(FACTS, {})
        compiler.feed([{"step": "1.command.command", "status": "would_change"}])
        segment = only(compiler)
        assert ids(segment) == ["4.command.command"]
        assert [said.kind for said in segment.controller_results] == ["known_after_apply"] * 2

    def test_a_step_that_is_ok_is_known(self, play: Compile) -> None:
        compiler = play(
            "    - {copy: {dest: /x, content: a}, register: r}\n    - {debug: {msg: '{{ r.changed }}'}}\n"
        )
        compiler.segment(FACTS, {})
        compiler.feed([{"step": "1.copy.file", "status": "ok"}])
        assert only(compiler).controller_results[0].text == "false"


class TestSecrets:
    def test_plans_hold_references(self, play: Compile) -> None:
        text = (
            "    - copy: {dest: /etc/token, content: 'token={{ token }}'}\n"
            "    - image: {name: 'r/x:1', username: u, password: '{{ token }}'}\n"
        )
        segment = only(play(text, {"token": Secret("hunter22", "token")}))
        assert "hunter22" not in canonical(segment.plan)
        assert segment.plan["steps"][0]["args"]["content"] == {"$secret": "1.copy.file:content"}
        assert {key: value.reveal() for key, value in segment.secrets.items()} == {
            "1.copy.file:content": "token=hunter22",
            "2.image.image:auth.password": "hunter22",
        }

    @pytest.mark.parametrize(
        "task",
        [
            "{command: 'login {{ token }}'}",
            "{command: {argv: [login, '{{ token }}']}}",
            "{shell: 'login {{ token }}'}",
            "{command: {cmd: login, env: {TOKEN: '{{ token }}'}}}",
            "{shell: {cmd: login, unless: 'test {{ token }}'}}",
        ],
    )
    def test_never_in_a_process_list(self, play: Compile, task: str) -> None:
        with pytest.raises(InputError, match=r"site.yaml:3:\d+: .* holds the secret token.*stdin") as raised:
            play(f"    - {task}\n", {"token": Secret("hunter22", "token")}).segment(FACTS, {})
        assert "hunter22" not in str(raised.value)

    def test_by_standard_input(self, play: Compile) -> None:
        text = "    - command: {cmd: chpasswd, stdin: 'dev:{{ token }}'}\n"
        segment = only(play(text, {"token": Secret("hunter22", "token")}))
        assert segment.secrets["1.command.command:stdin"].reveal() == "dev:hunter22"

    def test_not_in_what_is_said(self, play: Compile) -> None:
        text = "    - {name: 'With {{ token }}', debug: {msg: 'it is {{ token }}'}}\n"
        said = only(play(text, {"token": Secret("hunter22", "token")})).controller_results[0]
        assert "hunter22" not in f"{said.task} {said.text}"


class TestTags:
    TASKS = (
        "    - {command: a, tags: one}\n"
        "    - {command: b, tags: [two, never]}\n"
        "    - {command: c, tags: always}\n"
        "    - {command: d}\n"
    )

    @pytest.mark.parametrize(
        ("tags", "skip", "numbers"),
        [
            ((), (), "134"),
            (("one",), (), "13"),
            (("two",), (), "23"),
            (("never",), (), "23"),
            (("untagged",), (), "34"),
            (("tagged",), (), "13"),
            (("all",), (), "134"),
            ((), ("one",), "34"),
            ((), ("always",), "14"),
            (("one",), ("one",), "3"),
            ((), ("tagged",), "4"),
        ],
    )
    def test_as_in_ansible(self, play: Compile, tags: tuple[str], skip: tuple[str], numbers: str) -> None:
        segment = only(play(self.TASKS, tags=frozenset(tags), skip_tags=frozenset(skip)))
        assert "".join(step.partition(".")[0] for step in ids(segment)) == numbers


class TestProvision:
    WANTED: Mapping[str, Any] = {
        "image": "registry.example.net/pytorch:2.7",
        "image_digest": f"sha256:{'a' * 64}",
        "registry": "registry.example.net",
        "registry_username": "fleet",
        "registry_password": Secret("hunter22", "registry password"),
    }

    def compiler(self, **options: Any) -> HostCompiler:
        (play,) = load_playbook("provision").plays
        command = "fleet provision lab.yaml --limit {host}"
        return HostCompiler(play, "gpu01", self.WANTED, "7f3a", RunOptions(command=command, **options))

    def test_a_healthy_host(self) -> None:
        segment = only(self.compiler())
        assert [step["resource"] for step in segment.plan["steps"]] == [
            "package", "package", "service", "registry_login", "image",
            "systemd_unit", "agent_bundle", "systemd_unit",
        ]  # fmt: skip
        assert segment.controller_results[-1].kind == "facts_report"

    def test_a_blocked_host_is_not_touched(self) -> None:
        segment = only(self.compiler(), {**FACTS, "packages": {**FACTS["packages"], "manager": "dnf"}})
        assert segment.plan["steps"] == []
        assert segment.secrets == {}
        (blocked,) = segment.controller_results
        assert (blocked.kind, blocked.stops) == ("blocked", True)
        assert blocked.finding is not None
        assert blocked.finding.id == "preflight.package_manager"

    def test_a_cluster_managers_host_is_not_touched_without_leave(self) -> None:
        facts = {**FACTS, "kubelet": {"active": True}}
        segment = only(self.compiler(), facts)
        assert segment.plan["steps"] == []
        (pending,) = segment.controller_results
        assert (pending.kind, pending.stops) == ("pending", True)
        assert str(pending.remedy).endswith("fleet provision lab.yaml --limit gpu01 --disrupt")
        assert only(self.compiler(disrupt=True), facts).plan["steps"]

    def test_a_blocked_host_is_asked_nothing(self) -> None:
        facts = {**FACTS, "os": {"id": "arch", "version_id": "2026"}}
        (play,) = load_playbook("provision").plays
        compiler = HostCompiler(play, "gpu01", {"docker_engine_version": "27.5.1"}, "7f3a")
        assert compiler.queries(facts) == []
        assert compiler.segment(facts, {}).controller_results[0].kind == "blocked"

    def test_credentials_go_to_their_own_registry_only(self) -> None:
        (play,) = load_playbook("provision").plays
        elsewhere = {**self.WANTED, "image": "registry.example.network/pytorch:2.7"}
        steps = only(HostCompiler(play, "gpu01", elsewhere, "7f3a")).plan["steps"]
        assert "auth" not in self.image(steps)["args"]
        assert "auth" in self.image(only(self.compiler()).plan["steps"])["args"]

    @staticmethod
    def image(steps: list[Any]) -> dict[str, Any]:
        return next(step for step in steps if step["resource"] == "image")

    def test_preflight_cannot_be_left_out_by_tags(self) -> None:
        segment = only(self.compiler(tags=frozenset(("image",))), {**FACTS, "kubelet": {"active": True}})
        assert segment.plan["steps"] == []

    def test_a_pending_host_does_the_rest_and_is_told_how_to_go_on(self) -> None:
        facts = copy.deepcopy(FACTS)
        facts["engine"]["containers"] = [{"name": "train-17", "state": "running", "labels": {}}]
        compiler = HostCompiler(
            load_playbook("provision").plays[0],
            "gpu01",
            {**self.WANTED, "docker_engine_settings": {"log-driver": "local"}},
            "7f3a",
            RunOptions(command="fleet provision lab.yaml --limit {host}"),
        )
        segment = only(compiler, facts)
        assert "json_file" not in [step["resource"] for step in segment.plan["steps"]]
        assert self.image(segment.plan["steps"])
        (pending,) = [said for said in segment.controller_results if said.kind == "pending"]
        assert pending.remedy == "fleet provision lab.yaml --limit gpu01 --disrupt"

    def test_without_the_public_internet_a_site_must_name_its_repository(self) -> None:
        (play,) = load_playbook("provision").plays
        variables = {
            "public_internet": False,
            "docker_engine_source": "docker",
            "docker_engine_repository": {"key": "KEY"},
            "preflight_skip": ["preflight.foreign_engine"],
        }
        with pytest.raises(
            InputError, match=r"playbooks/provision.yaml:\d+:\d+: public_internet is false"
        ) as caught:
            HostCompiler(play, "gpu01", variables, "7f3a").segment(FACTS, {})
        assert "(the variable docker_engine_repository)" in str(caught.value)
