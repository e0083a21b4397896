"""A simulated machine in a folder: hardware view, a driver that is loaded, the library and nvidia-smi."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleet.lab.simulation import native
from fleet.lab.simulation.hardware import hardware
from fleet.lab.simulation.view import benchmarks_view, hardware_view

DRIVER = "580.159.03"


@dataclass
class Machine:
    """``state`` holds the view files; ``tools`` the compiled programs of ``driver``."""

    state: Path
    tools: Path
    library: Path

    def write(self, name: str, text: str) -> None:
        (self.state / name).write_text(text)

    def load(self, version: str, flavour: str = "open") -> None:
        self.write("loaded.view", f"loaded.version={version}\nloaded.flavour={flavour}\n")

    def fault(self, *lines: str) -> None:
        self.write("faults.view", "".join(f"{line}\n" for line in lines))

    def install(self, document: Mapping[str, Any]) -> None:
        self.write("hardware.view", hardware_view(document))
        self.write("benchmarks.view", benchmarks_view(document))

    def use(self, driver: str, cache: Path, flavour: str = "open") -> None:
        """Have ``driver`` installed and loaded in place of the other."""
        self.tools = native.build(driver, cache)
        versioned = self.library.with_name(f"libnvidia-ml.so.{driver}")
        shutil.copy(self.tools / "libnvidia-ml.so.1", versioned)
        self.library.unlink()
        self.library.symlink_to(versioned)
        self.load(driver, flavour)

    @contextlib.contextmanager
    def busy(self, gpu: int) -> Iterator[None]:
        """While it lasts, a process runs a simulated benchmark on GPU ``gpu``."""
        script = (
            "import fcntl, sys; f = open(sys.argv[1], 'w+'); fcntl.lockf(f, fcntl.LOCK_SH);"
            " print('held', flush=True); sys.stdin.read()"
        )
        argv = [sys.executable, "-c", script, str(self.working / f"gpu.{gpu}")]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield
            assert process.stdin is not None
            process.stdin.close()

    @property
    def working(self) -> Path:
        """The folder in which whoever is at work on a GPU holds a lock."""
        return self.state.with_name("load")

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "FLEET_LAB_GPU_STATE": str(self.state),
            "FLEET_LAB_GPU_LOAD": str(self.working),
            "FLEET_LAB_GPU_LIBRARY": str(self.library),
        }

    def smi(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.tools / "nvidia-smi", *arguments],
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=60,
            check=False,
        )


@pytest.fixture(scope="session")
def native_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("the simulated library is compiled with gcc")
    return tmp_path_factory.mktemp("native")


@pytest.fixture
def machine(native_cache: Path, tmp_path: Path) -> Machine:
    """Eight H100 with the driver's open modules loaded."""
    tools = native.build(DRIVER, native_cache)
    state = tmp_path / "state"
    state.mkdir()
    (tmp_path / "load").mkdir()
    library = tmp_path / "libnvidia-ml.so.1"
    shutil.copy(tools / "libnvidia-ml.so.1", tmp_path / f"libnvidia-ml.so.{DRIVER}")
    library.symlink_to(f"libnvidia-ml.so.{DRIVER}")
    made = Machine(state, tools, library)
    made.install(hardware("h100-sxm", 8))
    made.load(DRIVER)
    return made
