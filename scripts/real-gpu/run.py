#!/usr/bin/env python3
"""fleet provision against this machine's own GPUs, from nothing: sshd, Docker Engine, registry, image, run.

For a machine with an NVIDIA driver that has neither Docker nor sshd nor systemd nor a network: a rented
container, a test machine. Brings up what a host of fleet's has, from what ``parts`` collected elsewhere, runs
``fleet provision`` on it twice over that sshd, then with --check, and keeps what was seen.
docs/real-gpu.md explains it.

    run.py --parts parts.tar.xz --out FOLDER      as root; exit code 0 when everything held

:mod:`image` and :mod:`cdi` beside this file do the two larger steps.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
HOST = "gpu01"
REPOSITORY, TAG = "pytorch-cuda", "local"
DAEMON_JSON = Path("/etc/docker/daemon.json")
CDI_FILE = Path("/etc/cdi/nvidia.yaml")
WAIT_S = 60.0
PRODUCT = """\
import torch
print(torch.__version__, torch.version.cuda, torch.cuda.device_count(), "GPUs")
a = torch.randn(4096, 4096, device="cuda" if torch.cuda.is_available() else "cpu", dtype=torch.bfloat16)
print(a.device, torch.cuda.get_device_name(0) if a.is_cuda else "", (a @ a).float().abs().mean().item())
"""
WITNESSES: Mapping[str, Sequence[str]] = {
    "all GPUs": ("--device", "nvidia.com/gpu=all", "IMAGE", "nvidia-smi", "-L"),
    "one GPU, as uid 1000": ("--user", "1000:1000", "--memory=8g", "--cpus=2", "--device", "nvidia.com/gpu=0",
                             "IMAGE", "nvidia-smi", "-L"),
    "no GPU": ("IMAGE", "sh", "-c", "ls /dev/nvidia* 2>&1; true"),
    "torch": ("--device", "nvidia.com/gpu=all", "IMAGE", "python3", "-c", PRODUCT),
}  # fmt: skip


def say(text: str) -> None:
    """To whoever watches."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


class Bench:
    """One try: its folders, its environment, the processes it started, what it measured."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.work: Path = options.work
        self.out: Path = options.out
        self.root = self.work / "parts" / "root"
        self.logs = self.work / "logs"
        self.seconds: dict[str, float] = {}
        self.seen: dict[str, object] = {}
        self._running: list[subprocess.Popen[bytes]] = []
        for folder in (self.work, self.out, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.work.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """For the programs out of the parts: they and their libraries found first."""
        places = [str(self.root / each) for each in ("usr/bin", "usr/sbin")]
        libraries = [str(self.work / "libraries"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return {
            **os.environ,
            "PATH": ":".join([*places, os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")]),
            "LD_LIBRARY_PATH": ":".join(libraries),
        }

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure what happens inside."""
        say(name)
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - began, 2)
            self.summarize({"held": False, "stopped": f"after {name}"})  # the last one overwrites it

    def summarize(self, outcome: Mapping[str, object]) -> None:
        """summary.json, complete or as far as things are."""
        document = {**outcome, **self.seen, "seconds": self.seconds}
        (self.out / "summary.json").write_text(json.dumps(document, indent=2, default=str) + "\n")

    def start(self, name: str, command: Sequence[str | Path]) -> None:
        """A service that lives until :meth:`stop`; its words go to logs/NAME.log."""
        with (self.logs / f"{name}.log").open("ab") as log:
            self._running.append(
                subprocess.Popen(
                    [str(word) for word in command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.environment,
                    start_new_session=True,
                )
            )

    def wait_for(self, name: str, command: Sequence[str | Path]) -> str:
        """What ``command`` prints once it succeeds; SystemExit with the service's log where it never does."""
        until = time.monotonic() + WAIT_S
        while True:
            tried = self.run(command, check=False)
            if tried.returncode == 0:
                return tried.stdout
            if time.monotonic() > until or self._running[-1].poll() is not None:
                log = (self.logs / f"{name}.log").read_text(errors="replace")
                raise SystemExit(f"{name} does not answer ({tried.stderr.strip()}); it said:\n{log[-3000:]}")
            time.sleep(0.1)

    def run(self, command: Sequence[str | Path], *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """One program, its words kept. SystemExit where it fails and ``check``."""
        words = [str(word) for word in command]
        done = subprocess.run(words, capture_output=True, text=True, env=self.environment, check=False)
        if check and done.returncode != 0:
            raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def stop(self) -> None:
        """End what :meth:`start` started, last first."""
        for process in reversed(self._running):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        self._running.clear()

    def complete_libraries(self, program: Path) -> None:
        """Link those libraries of ``program`` that this machine lacks and the parts have."""
        folder = self.work / "libraries"
        folder.mkdir(exist_ok=True)
        while True:
            missing = [
                line.split()[0]
                for line in self.run(["ldd", program], check=False).stdout.splitlines()
                if "not found" in line
            ]
            found = {name: next(self.root.rglob(name), None) for name in missing}
            if None in found.values():
                raise SystemExit(
                    f"{program} needs {', '.join(missing)}, which neither machine nor parts have"
                )
            if not found:
                return
            for name, path in found.items():
                (folder / name).symlink_to(str(path))


def unpack(bench: Bench) -> None:
    """The parts, and the libraries that their programs lack here."""
    with tarfile.open(bench.options.parts) as archive:
        archive.extractall(bench.work / "parts", filter="tar")
    bench.seen["parts"] = (bench.work / "parts" / "packages.txt").read_text().split("\n")[:-1]
    for name in ("sbin/sshd", "bin/ssh-keygen", "sbin/dockerd", "bin/containerd", "bin/docker", "sbin/runc",
                 "bin/containerd-shim-runc-v2", "bin/docker-registry"):  # fmt: skip
        bench.complete_libraries(bench.root / "usr" / name)


def start_sshd(bench: Bench) -> None:
    """A real sshd on 127.0.0.1 with fresh keys; host key and client key in the work folder."""
    keygen = bench.root / "usr/bin/ssh-keygen"
    for name in ("host_key", "client_key"):
        bench.run([keygen, "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", bench.work / name])
    shutil.copy(bench.work / "client_key.pub", bench.work / "authorized_keys")
    (bench.work / "authorized_keys").chmod(0o600)
    words = (bench.work / "host_key.pub").read_text().split()
    (bench.work / "known_hosts").write_text(f"[127.0.0.1]:{bench.options.ssh_port} {words[0]} {words[1]}\n")
    _login_possible()
    config = bench.work / "sshd_config"
    # What this machine's own processes have, a login gets too: a container's variables are nowhere else.
    login = [f'"{name}={os.environ[name]}"' for name in ("PATH", "LD_LIBRARY_PATH") if os.environ.get(name)]
    config.write_text(
        f"Port {bench.options.ssh_port}\nListenAddress 127.0.0.1\nHostKey {bench.work}/host_key\n"
        f"AuthorizedKeysFile {bench.work}/authorized_keys\nPermitRootLogin prohibit-password\n"
        f"PasswordAuthentication no\nUsePAM no\nPidFile {bench.work}/sshd.pid\nStrictModes no\n"
        + (f"SetEnv {' '.join(login)}\n" if login else "")
    )
    bench.start("sshd", [bench.root / "usr/sbin/sshd", "-D", "-e", "-f", config])
    scan = bench.root / "usr/bin/ssh-keyscan"
    bench.wait_for("sshd", [scan, "-p", str(bench.options.ssh_port), "127.0.0.1"])


def _login_possible() -> None:
    """sshd's own account and folder; an account of root that is not locked."""
    Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        pwd.getpwnam("sshd")
    except KeyError:
        with Path("/etc/passwd").open("a") as accounts:
            accounts.write("sshd:x:74:65534::/run/sshd:/usr/sbin/nologin\n")
    shadow = Path("/etc/shadow")
    lines = shadow.read_text().splitlines() if shadow.exists() else []
    if any(line.startswith("root:!") for line in lines):  # "locked"; "*" has no password and may log in
        fixed = ["root:*:" + line.split(":", 2)[2] if line.startswith("root:!") else line for line in lines]
        shadow.write_text("\n".join(fixed) + "\n")


def start_engine(bench: Bench) -> None:
    """A real Docker Engine: without a bridge and iptables, which a bare machine's kernel may lack."""
    if DAEMON_JSON.exists() or Path("/var/run/docker.sock").exists():
        raise SystemExit("this machine has a Docker Engine already; provision it with fleet as it is")
    place = bench.options.data_root or _data_root(bench.work)
    DAEMON_JSON.parent.mkdir(parents=True, exist_ok=True)
    settings = {"data-root": str(place), "iptables": False, "ip6tables": False, "bridge": "none",
                "userland-proxy": False}  # fmt: skip
    DAEMON_JSON.write_text(json.dumps({**settings, "features": {"cdi": True}}, indent=2) + "\n")
    bench.start("dockerd", [bench.root / "usr/sbin/dockerd", "--pidfile", bench.work / "docker.pid"])
    bench.wait_for("dockerd", ["docker", "version", "--format", "{{.Server.Version}}"])
    info = bench.run(["docker", "info", "--format", "{{json .}}"]).stdout
    keys = (
        "ServerVersion",
        "Driver",
        "DockerRootDir",
        "CgroupVersion",
        "CgroupDriver",
        "CDISpecDirs",
        "KernelVersion",
    )
    bench.seen["engine"] = {key: json.loads(info).get(key) for key in keys}


def _data_root(work: Path) -> Path:
    """Where overlay2 works: the roomiest place that is no overlay itself."""
    # Only roots that stand on other file systems; names below them are this script's own.
    usual = ("/var/lib", str(work), "/mnt", "/tmp", "/dev/shm")  # noqa: S108
    places = [Path(each) for each in usual if os.path.isdir(each)]

    def fit(place: Path) -> tuple[bool, bool, int]:
        kind = subprocess.run(["stat", "-f", "-c", "%T", place], capture_output=True, text=True, check=False)
        return "overlay" not in kind.stdout, kind.stdout.strip() != "tmpfs", shutil.disk_usage(place).free

    return max(places, key=fit) / "fleet-real-gpu-docker"


def start_registry(bench: Bench) -> None:
    """A real registry on 127.0.0.1, plain HTTP: what is pulled is held against its digest anyway."""
    config = bench.work / "registry.yml"
    store = Path(str(json.loads(DAEMON_JSON.read_text())["data-root"]) + "-registry")
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {store}}}}}\n"
        f"http: {{addr: '127.0.0.1:{bench.options.registry_port}'}}\n"
    )
    bench.start("registry", [bench.root / "usr/bin/docker-registry", "serve", config])
    probe = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{bench.options.registry_port}/v2/')"
    bench.wait_for("registry", [sys.executable, "-c", probe])


def make_image(bench: Bench) -> None:
    """The machine's own Python and torch as an image in the registry."""
    from image import publish

    made = publish(f"127.0.0.1:{bench.options.registry_port}", REPOSITORY, TAG, bench.options.package)
    bench.seen["image"] = made
    say(f"  {made['files']} files, {int(str(made['bytes'])) / 1e9:.2f} GB, {made['digest']}")


def write_inventory(bench: Bench) -> Path:
    """One host: this machine, by its sshd. JSON is YAML."""
    variables: dict[str, object] = {
        "ansible_host": "127.0.0.1",
        "ansible_port": bench.options.ssh_port,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(bench.work / "client_key"),
        "ansible_ssh_common_args": f"-o IdentitiesOnly=yes -o UserKnownHostsFile={bench.work}/known_hosts",
        "nvidia_driver_source": "preinstalled",
        "docker_engine_source": "preinstalled",
        "container_toolkit_source": "preinstalled",
    }
    if shutil.which("nvidia-ctk") is None:
        variables["container_toolkit_cdi_command"] = [sys.executable, str(HERE / "cdi.py")]
    if "image" in bench.seen:
        variables["image"] = f"127.0.0.1:{bench.options.registry_port}/{REPOSITORY}:{TAG}"
        variables["image_digest"] = bench.seen["image"]["digest"]  # type: ignore[index]
    variables.update(bench.options.extra)
    path = bench.work / "inventory.yaml"
    path.write_text(json.dumps({"all": {"hosts": {HOST: variables}}}, indent=2) + "\n")
    return path


def provision(bench: Bench, inventory: Path, number: str, *more: str) -> int:
    """One run of fleet; its words in runN.txt, its host's report in reportN.json. Returns its exit code."""
    playbook = bench.options.playbook
    words = ["provision", str(inventory)] if playbook is None else ["run", str(inventory), str(playbook)]
    command = [sys.executable, "-m", "fleet.cli", *words, "-v", *bench.options.fleet_option, *more]
    folder = bench.work / "fleet"
    folder.mkdir(exist_ok=True)
    path = [str(bench.options.fleet), str(bench.work / "parts" / "site")]
    variables = {**os.environ, "PYTHONPATH": ":".join(path), "FLEET_STATE_DIR": str(folder / "state"),
                 "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}  # fmt: skip
    before = set(folder.glob("reports/*"))
    kept = bench.out / f"run{number}.txt"
    with kept.open("w") as stream:
        code = subprocess.run(
            command, cwd=folder, env=variables, stdout=stream, stderr=subprocess.STDOUT, check=False
        ).returncode
    sys.stderr.write(kept.read_text(errors="replace"))
    for run in sorted(set(folder.glob("reports/*")) - before):
        for report in sorted(run.glob(f"{HOST}*.json")):
            shutil.copy(report, bench.out / f"report{number}.json")
    return code


def witness(bench: Bench) -> bool:
    """docker run by hand, beside fleet: what containers of the pinned image see. False if one failed."""
    if "image" not in bench.seen:
        return True
    digest = bench.seen["image"]["digest"]  # type: ignore[index]
    reference = f"127.0.0.1:{bench.options.registry_port}/{REPOSITORY}@{digest}"
    commands = {"on the host": ["nvidia-smi", "-L"]}
    for title, words in WITNESSES.items():
        commands[title] = [
            "docker",
            "run",
            "--rm",
            *(reference if word == "IMAGE" else word for word in words),
        ]
    wrong = "sha256:" + "0" * 64
    commands["a wrong digest is refused"] = ["docker", "pull", reference.split("@")[0] + "@" + wrong]
    held = True
    with (bench.out / "witness.txt").open("w") as stream:
        for title, command in commands.items():
            began = time.monotonic()
            try:
                done = bench.run(command, check=False)
                code, said = done.returncode, done.stdout + done.stderr
            except OSError as error:
                code, said = 127, f"{error}\n"
            held = held and (code == 0) != (title == "a wrong digest is refused")
            shown = " ".join(command).replace(digest, digest[:19] + "…")
            stream.write(
                f"── {title}\n$ {shown}\n{said}exit code {code}, {time.monotonic() - began:.2f} s\n\n"
            )
    sys.stderr.write((bench.out / "witness.txt").read_text())
    return held


def about_the_machine(bench: Bench) -> None:
    """What it is: for the reader of the results, and for telling why a step could not run."""
    process_1 = Path("/proc/1/comm").read_text().strip()
    release = Path("/etc/os-release").read_text()
    bench.seen["machine"] = {
        "os": next((line[13:-1] for line in release.splitlines() if line.startswith("PRETTY_NAME=")), None),
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
        "process_1": process_1,
        "systemd": os.path.isdir("/run/systemd/system"),
        "cores": os.cpu_count(),
        "cgroup2": os.path.exists("/sys/fs/cgroup/cgroup.controllers"),
        "driver": _first_line("/proc/driver/nvidia/version"),
        "systemctl": shutil.which("systemctl"),
        "nvidia_smi": shutil.which("nvidia-smi"),
    }


def _first_line(path: str) -> str | None:
    try:
        return Path(path).read_text().splitlines()[0]
    except OSError:
        return None


def keep(bench: Bench, outcome: Mapping[str, object]) -> None:
    """summary.json, and everything to look into afterwards in kept.tar.gz (no keys)."""
    bench.summarize(outcome)
    with tarfile.open(bench.out / "kept.tar.gz", "w:gz") as archive:
        for path in (bench.logs, bench.work / "inventory.yaml", bench.work / "sshd_config", CDI_FILE,
                     bench.work / "fleet/reports", DAEMON_JSON, Path("/var/lib/fleet")):  # fmt: skip
            if path.exists():
                archive.add(
                    path, arcname=path.name, filter=lambda member: None if "agent/" in member.name else member
                )


def perform(bench: Bench) -> dict[str, object]:
    """Everything in order; the outcome: exit codes and whether all held."""
    about_the_machine(bench)
    for title, action in (
        ("unpack", unpack),
        ("sshd", start_sshd),
        ("engine", start_engine),
        ("registry", start_registry),
        ("image", make_image),
    ):
        if title not in bench.options.without:
            with bench.phase(title):
                action(bench)
    inventory = write_inventory(bench)
    codes = []
    for number in ("1", "2"):
        with bench.phase(f"fleet, run {number}"):
            codes.append(provision(bench, inventory, number))
    with bench.phase("fleet, check"):
        codes.append(provision(bench, inventory, "3", "--check"))
    changed_nothing = "changed=0" in (bench.out / "run2.txt").read_text()
    would_change_nothing = "0 steps would change" in (bench.out / "run3.txt").read_text()
    with bench.phase("witness"):
        seen = witness(bench)
    held = codes == [0, 0, 0] and changed_nothing and would_change_nothing and seen
    return {
        "held": held,
        "exit_codes": codes,
        "second_run_changed_nothing": changed_nothing,
        "check_would_change_nothing": would_change_nothing,
        "witness_held": seen,
    }


def pair(text: str) -> tuple[str, object]:
    """KEY=VALUE; the value is JSON where it can be read as such, else text."""
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Run fleet provision against this machine's own GPUs.")
    parser.add_argument("--parts", type=Path, required=True, help="what `parts` made: parts.tar.xz")
    parser.add_argument("--out", type=Path, required=True, help="where results go")
    parser.add_argument(
        "--work", type=Path, default=Path("/var/lib/fleet-real-gpu"), help="for everything else"
    )
    parser.add_argument("--fleet", type=Path, default=CHECKOUT, help="checkout of fleet to run")
    parser.add_argument("--playbook", type=Path, help="play this instead of fleet provision")
    parser.add_argument(
        "--package", action="append", default=[], help="Python packages of the image (torch, numpy)"
    )
    parser.add_argument("--data-root", type=Path, help="the engine's; a real file system")
    parser.add_argument("--ssh-port", type=int, default=2222)
    parser.add_argument("--registry-port", type=int, default=5000)
    parser.add_argument("-e", dest="extra", type=pair, action="append", default=[], metavar="KEY=VALUE",
                        help="a variable of the host in the inventory; the value may be JSON")  # fmt: skip
    parser.add_argument("--without", action="append", default=[], metavar="PHASE",
                        choices=["image"], help="leave out: image")  # fmt: skip
    parser.add_argument(
        "--fleet-option", action="append", default=[], help="handed on to fleet, as --fleet-option=-vv"
    )
    given = parser.parse_args(arguments)
    given.package = given.package or ["torch", "numpy"]
    given.extra = dict(given.extra)
    return given


def main() -> int:
    """0: all runs ended well, the second and the check changed nothing, the witnesses agree. 1: not so."""
    bench = Bench(options())
    if os.geteuid() != 0:
        raise SystemExit("this sets up services: run it as root")
    outcome: dict[str, object] = {"held": False}
    try:
        outcome = perform(bench)
    except SystemExit as error:
        outcome["stopped"] = str(error)
        sys.stderr.write(f"{error}\n")
    finally:
        keep(bench, outcome)
        bench.stop()
    say(json.dumps({**outcome, "seconds": bench.seconds}))
    return 0 if outcome["held"] else 1


if __name__ == "__main__":
    sys.exit(main())
