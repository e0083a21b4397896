"""Why a DKMS build failed, out of the package manager's output and make.log."""

from __future__ import annotations

import pytest

from fleet.agent.driver import build_errors

KERNEL = "6.8.0-1040-aws"
LOG = "/var/lib/dkms/nvidia/570.86.15/build/make.log"
APT = f"""\
Setting up nvidia-dkms-570-open (570.86.15-0ubuntu1) ...
Building module:
Cleaning build area...
Error! Bad return status for module build on kernel: {KERNEL} (x86_64)
Consult {LOG} for more information.
dpkg: error processing package nvidia-dkms-570-open (--configure):
 installed nvidia-dkms-570-open package post-installation script subprocess returned error exit status 10
Errors were encountered while processing:
 nvidia-dkms-570-open
 nvidia-headless-570-open
needrestart is being skipped since dpkg has failed
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
OTHER_COMPILER = """\
DKMS make.log for nvidia-570.86.15 for kernel 6.8.0-1040-aws (x86_64)
warning: the compiler differs from the one used to build the kernel
  The kernel was built by: x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0
  You are using:           cc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0
"""
OPTION = """\
gcc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'
make[2]: *** [scripts/Makefile.build:243: /var/lib/dkms/nvidia/570.86.15/build/nvidia/nv.o] Error 1
"""
API = """\
/var/lib/dkms/nvidia/535.1.1/build/nvidia/nv.c:88:5: error: implicit declaration of function 'follow_pfn'
make[2]: *** [scripts/Makefile.build:243: nvidia/nv.o] Error 1
"""


def test_a_failed_build_names_reason_kernel_driver_and_the_compiler_that_is_needed() -> None:
    problem = build_errors.explain(APT, {LOG: OTHER_COMPILER + OPTION}.get)
    assert problem is not None
    assert (problem["reason"], problem["kernel"], problem["driver"]) == (
        "dkms_build_failed", KERNEL, "570.86.15",
    )  # fmt: skip
    assert "gcc-12 needed" in problem["what"]
    assert "cc 11.4.0" in problem["what"]
    assert KERNEL in problem["what"]
    assert "half installed: nvidia-dkms-570-open, nvidia-headless-570-open" in problem["what"]
    assert problem["remedy"].startswith("apt-get install gcc-12; then: dpkg --configure -a")
    assert LOG in problem["remedy"]
    assert "do not reboot" in problem["remedy"]
    assert problem["transient"] is False


def test_without_its_log_a_failed_build_is_still_named() -> None:
    problem = build_errors.explain(APT, lambda path: None)
    assert problem is not None
    assert problem["what"].startswith(f"the module nvidia 570.86.15 does not build for kernel {KERNEL}")


@pytest.mark.parametrize(
    ("log", "cause", "remedy"),
    [
        (OTHER_COMPILER + OPTION, ("gcc-12 needed: the kernel was built by gcc-12 12.3.0, the module by cc 11.4.0 "
         "(-ftrivial-auto-var-init=zero is not known to it)"), "apt-get install gcc-12"),
        (OTHER_COMPILER + API, "does not go with that kernel", "choose a driver made for that kernel"),
        (OTHER_COMPILER, "gcc-12 needed", "apt-get install gcc-12"),
        (API, "'follow_pfn'", "older kernel"),
        ("cc1: No space left on device\n", "no space left", "df -h"),
        ("gcc: fatal error: Killed signal terminated program cc1\n", "out of memory", "memory"),
        ("make: *** [Makefile:1: nvidia] Error 2\n", "make: *** [Makefile:1: nvidia] Error 2", None),
        ("/bin/sh: 1: gcc-13: not found\n", "gcc-13: not found", None),
        ("", "it does not say why", None),
    ],
)  # fmt: skip
def test_the_short_cause(log: str, cause: str, remedy: str | None) -> None:
    found = build_errors.cause(log)
    assert cause in found["cause"]
    assert remedy is None if found["remedy"] is None else remedy is not None and remedy in found["remedy"]


@pytest.mark.parametrize(
    ("built_by", "using", "needed", "used"),
    [
        ("gcc-14 (Debian 14.2.0-19) 14.2.0", "cc (Debian 12.2.0-14) 12.2.0", "gcc-14 14.2.0", "cc 12.2.0"),
        ("gcc (GCC) 11.4.1 20230605", "gcc (GCC) 8.5.0", "gcc-11 11.4.1", "gcc 8.5.0"),
        ("gcc-12 (Debian 12.2.0-14) 12.2.0", "gcc-12 (Debian 12.2.0-14) 12.2.0", None, None),
    ],
)
def test_compilers_by_name_and_version(built_by: str, using: str, needed: str, used: str) -> None:
    found = build_errors.cause(f"  The kernel was built by: {built_by}\n  You are using:  {using}\n")
    assert (found["needed"], found["used"]) == (needed, used)


def test_missing_headers_are_a_reason_of_their_own_unless_a_build_failed() -> None:
    said = f"Error! Your kernel headers for kernel {KERNEL} cannot be found at /lib/modules/{KERNEL}/build.\n"
    problem = build_errors.explain(said, lambda path: None)
    assert problem is not None
    assert problem["reason"] == "headers_missing"
    assert f"linux-headers-{KERNEL}" in problem["remedy"]
    both = build_errors.explain(said + APT, lambda path: None)
    assert both is not None
    assert both["reason"] == "dkms_build_failed"


def test_other_output_is_no_build_failure() -> None:
    assert build_errors.explain("E: Unable to locate package foo\n", lambda path: None) is None
