"""The frame of the command line: loading, errors, exit codes, what goes to which stream."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import fleet
from fleet.cli import main
from fleet.cli import options as shared
from fleet.cli.lazy import LazyGroup
from fleet.cli.main import COMMANDS, cli
from fleet.core.errors import (
    ConnectFailed,
    ExitCode,
    FleetError,
    HostBlocked,
    HostFailed,
    HostPending,
    InputError,
    Interrupted,
    Position,
    Problem,
    RefusedError,
    overall,
)
from fleet.core.secret import Secret


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Puts a command named ``try`` into the table."""

    def put(function: Callable[..., Any]) -> None:
        module = sys.modules[__name__]
        made = function if isinstance(function, click.Command) else click.command("try")(function)
        monkeypatch.setattr(module, "TRY", made, raising=False)
        monkeypatch.setitem(cli.table, "try", (f"{__name__}:TRY", "Try."))  # type: ignore[attr-defined]

    return put


def raising(error: BaseException) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


def run_fleet(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fleet.cli", *words],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_help_imports_no_command_and_nothing_heavy() -> None:
    code = (
        "import sys; from fleet.cli import main; main(['--help'])\n"
        "loaded = {name for name in sys.modules if name.startswith('fleet.')}\n"
        "cli = {f'fleet.cli{name}' for name in ('', '.main', '.lazy', '.options')}\n"
        "assert loaded == {*cli, 'fleet.core', 'fleet.core.errors'}, loaded\n"
        "heavy = 'rich sqlalchemy yaml jsonschema jinja2 paramiko fabric logging asyncio'.split()\n"
        "assert not set(heavy) & set(sys.modules), set(heavy) & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name, (_, words) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(words.split()[0])}", done.stdout, re.MULTILINE)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fleet {fleet.__version__}\n"


def every_command(group: click.Group, *words: str) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        yield (*words, name)
        if isinstance(found, click.Group):
            yield from every_command(found, *words, name)


@pytest.mark.parametrize("words", [(), *every_command(cli)], ids=" ".join)
def test_help_of_every_command_has_examples_and_says_what_each_word_means(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    usage, _, rest = shown.partition("\n\n")
    assert usage.startswith(" ".join(["Usage: fleet", *words]))
    assert "``" not in shown
    if words not in {("schema", "list")}:
        assert "Examples:" in rest
    assert max(map(len, shown.splitlines())) <= 108


@pytest.mark.parametrize("words", [[], ["schema"]])
def test_a_group_without_a_command_shows_its_help_and_is_bad_input(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Commands:" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rusn"], "fleet: there is no command rusn; did you mean run"),
        (["qqqqqq"], "fleet: there is no command qqqqqq; there are: provision, run"),
        (["--nope"], "fleet: there is no option --nope"),
        (["runs", "--limt", "3"], "fleet runs: there is no option --limt; did you mean --limit?"),
        (["runs", "--limit", "x"], "fleet runs: invalid value for '--limit'"),
        (["runs", "shw"], "fleet runs: there is no command shw; did you mean show?"),
        (["lab", "start"], "fleet lab: there is no command start; did you mean status?"),
        (["agent", "qqqq"], "fleet agent: there is no command qqqq; there are: probe"),
        (["-v", "runs"], "fleet: there is no option -v; a command's options stand after its name"),
        (["report"], "fleet report: missing argument 'RUN'"),
        (["report", "a", "b", "c"], "fleet report: got unexpected extra argument (c)"),
    ],
)
def test_a_mistake_in_the_words_is_one_problem_with_a_hint(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, second, third = err.splitlines()
    assert first.startswith(message)
    assert re.fullmatch(r"  fleet( \w+)? --help shows how", second)
    assert third == "1 problem; nothing was touched. exit 2"


def test_bad_input_lists_every_problem_with_its_place(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    problems = [
        Problem(Position("lab.yaml", 14, 21), 'ansible_port must be a number, not "twenty-two"'),
        Problem(Position("lab.yaml", 2, 9), "write it in quotes"),
        Problem(None, "--limit matches no host"),
    ]
    command(raising(InputError(problems, remedy="fleet inventory lab.yaml")))
    assert main(["try"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        'lab.yaml:14:21: ansible_port must be a number, not "twenty-two"',
        "lab.yaml:2:9:   write it in quotes",
        "--limit matches no host",
        "  remedy: fleet inventory lab.yaml",
        "3 problems; nothing was touched. exit 2",
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HostFailed("broke", host="gpu01", remedy="mend it"), 1),
        (HostBlocked("no", rule="preflight.clock"), 1),
        (RefusedError("the lab is down", remedy="fleet lab up"), 2),
        (ConnectFailed("no answer", host="gpu01"), 3),
        (HostPending("busy", remedy="--disrupt"), 5),
        (Interrupted("stopped"), 130),
        (FleetError("x"), 1),
    ],
)
def test_an_error_says_what_where_what_to_do_and_ends_with_the_log(
    error: FleetError,
    code: int,
    command: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    command(raising(error))
    assert main(["try"]) == code
    out, err = capsys.readouterr()
    lines = [*str(error).splitlines(), f"exit {code}", f"log: {tmp_path}/state/fleet.log"]
    assert (out, err.splitlines()) == ("", lines)
    assert error.what in (tmp_path / "state" / "fleet.log").read_text()


def test_a_bug_is_one_line_on_the_screen_and_a_traceback_in_the_log(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    @click.command("try")
    @click.pass_obj
    def bug(session: shared.Session) -> None:
        session.scrubber.add(Secret("hunter2!", "sudo password"))
        raise TypeError("hunter2!\nis no number")

    command(bug)
    assert main(["try"]) == 70
    log = tmp_path / "state" / "fleet.log"
    assert capsys.readouterr() == (
        "",
        f"bug in fleet: TypeError: ******** is no number; the traceback is in {log}; please report it\n",
    )
    text = log.read_text()
    assert "Traceback (most recent call last)" in text
    assert "hunter2!\n" not in text.replace("TypeError(", "")
    assert "TypeError: ********" in text


def test_a_bug_that_cannot_be_logged_says_so(
    command: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "file"))
    command(raising(KeyError("x")))
    assert main(["try"]) == 70
    assert "could not be logged" in capsys.readouterr().err


def test_an_interrupt_is_130_and_no_traceback(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(raising(KeyboardInterrupt()))
    assert main(["try"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted. exit 130"


@pytest.mark.parametrize("code", [0, 1, 3, 5, ExitCode.FINDINGS])
def test_what_a_command_returns_is_the_exit_code(code: int, command: Callable[..., None]) -> None:
    command(lambda: code)
    assert main(["try"]) == code


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([], 0),
        ([ExitCode.DONE, ExitCode.FINDINGS], 4),
        ([ExitCode.FINDINGS, ExitCode.PENDING], 5),
        ([ExitCode.PENDING, ExitCode.UNREACHABLE], 3),
        ([ExitCode.UNREACHABLE, ExitCode.FAILED], 1),
        ([ExitCode.FAILED, ExitCode.BAD_INPUT], 2),
        ([ExitCode.BAD_INPUT, ExitCode.BUG], 70),
        ([ExitCode.BUG, ExitCode.INTERRUPTED, ExitCode.DONE], 130),
    ],
)
def test_of_several_exit_codes_the_published_first_wins(parts: list[ExitCode], code: int) -> None:
    assert overall(parts) == code


def test_a_reader_that_has_gone_is_quiet(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "fleet.cli", "schema", "show", "report"], stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_broken_pipe_elsewhere_is_a_bug(command: Callable[..., None]) -> None:
    command(raising(BrokenPipeError(32, "Broken pipe")))
    assert main(["try"]) == 70


def test_only_the_command_called_is_imported() -> None:
    group = LazyGroup("x", table={"good": (f"{__name__}:GOOD", "Good."), "bad": ("nowhere:nothing", "Bad.")})
    context = click.Context(group)
    assert group.list_commands(context) == ["good", "bad"]
    assert group.get_command(context, "good") is GOOD
    assert group.get_command(context, "ugly") is None
    with pytest.raises(ModuleNotFoundError):
        group.get_command(context, "bad")


def test_every_command_of_the_table_is_there_and_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        assert f"Usage: fleet {name} " in capsys.readouterr().out


GOOD = click.Command("good")


@click.command("try")
@shared.inventory_argument
@shared.host_options
@shared.play_options
@shared.connection_options
@shared.output_options
@click.pass_obj
def everything(session: shared.Session, **values: Any) -> None:
    SEEN.update(values, level=session.level, json=session.json, diff=session.diff, log=session.log_path)


SEEN: dict[str, Any] = {}


def options(command: Callable[..., None], *words: str) -> dict[str, Any]:
    SEEN.clear()
    command(everything)
    assert main(["try", *words]) == 0
    return SEEN


def test_shared_options_as_they_arrive(command: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "vars.yml").write_text("a: 1")
    words = "lab.yaml -l gpu[1:3] -t a,b --tags c --skip-tags d -e x=1=2 -CD -K -vv --json --disrupt -f 7"
    seen = options(
        command,
        *words.split(),
        "-e",
        f"@{tmp_path}/vars.yml",
        "-e",
        '{"y": [1]}',
        "--log-file",
        "x.log",
        "--ssh-config",
        "c",
    )
    assert (seen["inventory"], seen["limit"], seen["forks"]) == ("lab.yaml", "gpu[1:3]", 7)
    assert (seen["tags"], seen["skip_tags"]) == (("a", "b", "c"), ("d",))
    assert seen["extra_vars"] == (
        ("pair", ("x", "1=2")),
        ("file", tmp_path / "vars.yml"),
        ("json", {"y": [1]}),
    )
    assert (seen["check"], seen["diff"], seen["disrupt"], seen["ask_become_pass"]) == (True, True, True, True)
    assert (seen["level"], seen["json"], seen["log"]) == (2, True, Path("x.log"))
    assert seen["ssh_config"] == Path("c")


def test_shared_options_by_default(command: Callable[..., None]) -> None:
    seen = options(command, "-", "-q")
    assert (seen["level"], seen["json"], seen["diff"], seen["tags"], seen["extra_vars"]) == (
        -1,
        False,
        False,
        (),
        (),
    )
    assert (seen["accept_new"], seen["vault_password_file"], seen["limit"]) == (False, None, None)


@pytest.mark.parametrize("words", ["x", "1x=2", "@/nowhere", "{x"])
def test_an_extra_variable_that_is_none_is_bad_input(
    words: str, command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(everything)
    assert main(["try", "lab.yaml", "-e", words]) == 2
    assert "--extra-vars" in capsys.readouterr().err
