"""What the loader takes, and what it says about everything else: every problem at once, with positions."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.core.data import data_dir
from fleet.core.errors import InputError
from fleet.playbook.load import load_playbook
from fleet.playbook.model import Playbook


def load(tmp_path: Path, text: str) -> Playbook:
    path = tmp_path / "site.yaml"
    path.write_text(text)
    return load_playbook(path)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as raised:
        load(tmp_path, text)
    return [str(problem).replace(f"{tmp_path}/", "") for problem in raised.value.problems]


def task_problems(tmp_path: Path, *lines: str) -> list[str]:
    """Problems of a play whose only task starts on line 3, column 7."""
    body = "\n".join(lines).replace("\n", "\n      ")
    return problems(tmp_path, f"- hosts: all\n  tasks:\n    - {body}\n")


@pytest.mark.parametrize("name", sorted(path.stem for path in data_dir("playbooks").glob("*.yaml")))
def test_every_shipped_playbook_loads(name: str) -> None:
    assert load_playbook(name).plays


def test_the_benchmark_is_the_twelve_steps() -> None:
    (play,) = load_playbook(Path(__file__).parents[2] / "benchmarks" / "noop.yaml").plays
    modules = "apt file copy copy systemd_service user file lineinfile copy copy copy file"
    assert [task.module for task in play.tasks] == modules.split()


def test_an_unknown_playbook_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean provision"):
        load_playbook("provison")


def test_words_of_a_play(tmp_path: Path) -> None:
    playbook = load(
        tmp_path,
        """
- name: Site
  hosts: [gpu, "!gpu07"]
  gather_facts: false
  become: true
  serial: [1, "30%"]
  max_fail_percentage: 10
  any_errors_fatal: true
  vars: {port: 8080}
  pre_tasks:
    - debug: {msg: first}
  tasks:
    - debug: {msg: "port {{ port }}"}
  post_tasks:
    - ansible.builtin.debug: {msg: last}
""",
    )
    (play,) = playbook.plays
    assert play.hosts == "gpu,!gpu07"
    assert play.serial == (1, "30%")
    assert (play.max_fail_percentage, play.any_errors_fatal) == (10.0, True)
    assert [task.arguments["msg"] for task in play.tasks] == ["first", "port {{ port }}", "last"]
    assert [task.number for task in play.tasks] == [1, 2, 3]


def test_blocks_hand_down_what_they_say(tmp_path: Path) -> None:
    (play,) = load(
        tmp_path,
        """
- hosts: all
  tags: site
  tasks:
    - when: a
      tags: [one, two]
      become_user: dev
      vars: {x: 1}
      block:
        - command: id
          when: b
          tags: three
          vars: {y: 2}
        - block:
            - command: id
              become_user: root
""",
    ).plays
    first, second = play.tasks
    assert [each.text for each in first.when] == ["a", "b"]
    assert first.tags == {"site", "one", "two", "three"}
    assert (first.become_user, second.become_user) == ("dev", "root")
    assert first.vars == {"x": 1, "y": 2}
    assert second.vars == {"x": 1}


def test_text_that_looks_like_a_number_stays_as_written(tmp_path: Path) -> None:
    (play,) = load(
        tmp_path,
        """
- hosts: all
  tasks:
    - copy: {dest: /x, content: a, mode: 0644}
    - docker_engine: {version: 27.10}
    - apt: {name: [1.10]}
""",
    ).plays
    assert play.tasks[0].arguments["mode"] == "0644"
    assert play.tasks[1].arguments["version"] == "27.10"
    assert play.tasks[2].arguments["name"] == ["1.10"]


def test_free_form_and_args(tmp_path: Path) -> None:
    (play,) = load(
        tmp_path,
        """
- hosts: all
  tasks:
    - command: mkdir /x
      args: {creates: /x}
      changed_when: false
""",
    ).plays
    assert play.tasks[0].arguments == {"cmd": "mkdir /x", "creates": "/x", "changed_when": False}


def test_handlers_are_found_by_name_and_by_listen(tmp_path: Path) -> None:
    (play,) = load(
        tmp_path,
        """
- hosts: all
  tasks:
    - copy: {dest: /x, content: a}
      notify: [restart ssh, web]
  handlers:
    - name: restart ssh
      service: {name: ssh, state: restarted}
    - name: restart nginx
      service: {name: nginx, state: restarted}
      listen: web
    - name: reload haproxy
      service: {name: haproxy, state: reloaded}
      listen: web
""",
    ).plays
    assert play.tasks[0].notify == ("restart ssh", "restart nginx", "reload haproxy")


def test_all_problems_are_told_at_once_in_file_order(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """\
- hosts: all
  taks: []
  tasks:
    - cpoy: {dest: /x}
    - copy: {dst: /x, content: a}
    - file: {path: relative, state: directory, mode: 644}
    - command: id
      wen: true
      notify: nobody
- name: no hosts
""",
    )
    assert found == [
        "site.yaml:2:3: a play has no taks; did you mean tasks?",
        "site.yaml:4:7: there is no module cpoy; did you mean copy?",
        "site.yaml:5:14: copy has no argument dst; did you mean dest?".replace("14", "19"),
        'site.yaml:6:20: path must be an absolute path, not "relative"',
        'site.yaml:6:54: mode must be octal digits in quotes, such as "0644", not the number 644',
        'site.yaml:7:7: notify: there is no handler "nobody"; the play has none',
        "site.yaml:8:7: a task has no wen; did you mean when?",
        "site.yaml:10:3: a play needs hosts: a pattern such as all, or a group's name",
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("command: id\ndelegate_to: x", "4:7: delegate_to is not supported: a task runs on its own host"),
        ("block: []\nrescue: []", "4:7: rescue is not supported: only block: is supported"),
        ("dnf: {name: x}", "3:7: there is no module dnf: write package:"),
        ("command: id\ncopy: {dest: /x}", "4:7: a task does one thing; this one has command and copy"),
        ("name: nothing", "3:7: this task names no module"),
        ("copy: ls", "3:13: copy takes a mapping (src: …), not text"),
        ("copy: {dest: /x}", "3:7: copy needs src or content, and only one of them"),
        ("copy: {dest: /x, src: gone.txt}", "3:29: gone.txt is not in files/ next to the playbook"),
        ("template: {dest: /x, src: gone.j2}", "3:33: gone.j2 is not in templates/ next to the playbook"),
        ("apt: {name: x, state: latest}", "3:29: state: latest means another version on every day"),
        ("apt: {name: x, upgrade: dist}", "3:31: upgrade is not taken by apt: upgrading everything"),
        ("apt: {name: x, state: presnt}", "3:29: state must be one of present, installed"),
        ("file: {path: /x, state: touch}", "3:31: state: touch changes the file on every run"),
        ("service: {name: ssh, state: restarted}", "3:35: state: restarted in a task would act on every run"),
        ("command: ls creates=/x", "3:16: creates= inside the command is not read"),
        ('command: id\nwhen: "{{ a }}"', "4:13: when is an expression already; leave out the braces"),
        ("command: id\nwhen: a ==", "4:13: this is not a template"),
        ('debug: {msg: "{{ a"}', "3:20: this is not a template"),
        ("command: id\nloop: {a: 1}", "4:13: loop must be a list, not a mapping"),
        ("command: id\nchanged_when: rc == 1", "4:7: changed_when must be true or false"),
        ("file: {path: /x}\nchanged_when: false", "4:7: changed_when belongs to command and shell"),
        ("user: {name: x, password: secret}", "3:33: password must be a crypt hash"),
        ("image: {name: x, digest: sha256:abc}", "3:32: digest must be sha256: and 64 hex digits"),
        ("lineinfile: {path: /x, line: a, regexp: '('}", "3:47: regexp is not a regular expression"),
        ("command: id\nregister: a-b", '4:17: register must be a name of letters, digits and _, not "a-b"'),
        ("command: id\nignore_errors: maybe", "4:22: ignore_errors must be true or false, not text"),
        ("copy: {dest: yes, content: a}", "3:20: dest must be text, not the boolean true"),
        (
            'debug: {msg: "{{ a | defalt(1) }}"}',
            "3:20: this is not a template: No filter named 'defalt'; did you mean default?",
        ),
        ("meta: clear_facts", "3:13: of meta only flush_handlers is supported"),
    ],
)
def test_what_is_said_about_a_wrong_task(tmp_path: Path, line: str, said: str) -> None:
    found = task_problems(tmp_path, *line.split("\n"))
    assert len(found) == 1, found
    assert found[0].startswith(f"site.yaml:{said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hosts: all\n", "1:1: a playbook is a list of plays"),
        ("- hosts: all\n  roles: [x]\n", "2:3: roles is not supported: write the tasks in the playbook"),
        (
            "- hosts: all\n  serial: 0\n",
            '2:11: serial must be a number of hosts or a percentage such as "30%"',
        ),
        ("- hosts: all\n  tasks: {a: 1}\n", "2:10: tasks must be a list"),
        ("- hosts: all\n  vars: {a-b: 1}\n", '2:10: "a-b" cannot be a variable'),
        ("- hosts: all\n  vars: {a: !secret env X}\n", "2:13: !secret cannot be used in this file"),
        ("- hosts: all\n  vars_files: gone.yaml\n", "2:15: gone.yaml is not next to the playbook"),
        ("- hosts: all\n  handlers:\n    - command: id\n", "3:7: a handler needs a name"),
    ],
)
def test_what_is_said_about_a_wrong_play(tmp_path: Path, text: str, said: str) -> None:
    (found,) = problems(tmp_path, text)
    assert found.startswith(f"site.yaml:{said}")


def test_an_empty_file_is_one_clear_error(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, "")
    assert "is empty" in found


def test_variables_of_files_override_those_of_the_play(tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("a: 2\nb: 3\n")
    (play,) = load(tmp_path, "- hosts: all\n  vars: {a: 1}\n  vars_files: [more.yaml]\n").plays
    assert play.vars == {"a": 2, "b": 3}
