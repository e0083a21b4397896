"""Outputs of real GPUs through ``fleet health --from-capture``: what each is known to have, and nothing else.

Skipped where the files are not beside the checkout. A healthy GPU gives nothing; where persistence is off, or a link
has half its lanes, that is so on that host.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleet.cli.main import main
from tests.agent.nvidia_smi.captured import SAMPLES, names, needs_samples

pytestmark = needs_samples

Found = Mapping[str, list[str]]

OFF, WIDTH = "persistence.off", "pcie.width"
EIGHT_B200 = [f"0000:{bus}:00.0" for bus in ("8f", "90", "96", "97", "c4", "c5", "cb", "cc")]
# file -> rule -> the GPUs it names; "" where it names none.
FINDINGS: dict[str, Found] = {
    "smi-qx_a100.xml": {},
    "smi-qx_gb200.xml": {},
    "smi-qx_gb300.xml": {},
    "smi-qx_h100.xml": {},
    "smi-qx_h200x2_580.159.04.xml": {},
    "smi-q_h200x2_580.159.04.txt": {},
    "smi-qx_rtx-4000-sff-ada_v13.xml": {},
    "capture_nvidia-h100-80gb-hbm3__590.48.01.txt": {},
    "capture_nvidia-h100-mig__590.48.01.txt": {},
    "capture_nvidia-h200__590.48.01.txt": {},
    "capture_nvidia-h200-mig__590.48.01.txt": {},
    # Well, and without persistence.
    "smi-qx_b200.xml": {OFF: EIGHT_B200},
    "smi-qx_gtx-1660-ti.xml": {OFF: ["0000:43:00.0"]},
    "capture_nvidia-geforce-rtx-2080-super__610.57.04.txt": {OFF: ["0000:0c:00.0"]},
    "capture_nvidia-geforce-rtx-4080-super__595.71.05.txt": {OFF: ["0000:01:00.0"]},
    "capture_nvidia-l40s__595.80.txt": {OFF: ["0000:01:00.0"]},
    # Half the lanes: a remark in a virtual machine, whose slot nobody in it knows.
    "smi-qx_a10g.xml": {OFF: ["0000:00:1e.0"], WIDTH: ["0000:00:1e.0"]},
    "smi-qx_tesla-t4.xml": {OFF: ["0000:00:1e.0"], WIDTH: ["0000:00:1e.0"]},
    "smi-qx_t4.xml": {WIDTH: ["0000:00:1e.0"]},
    "smi-qx_l40s.xml": {WIDTH: ["0000:30:00.0"]},
    "smi-qx_quadro-p2000_v12.xml": {WIDTH: ["0000:17:00.0"]},
    # Remarks.
    "smi-qx_rtx-3090_v12.xml": {"power.limit": ["0000:00:10.0"]},
    "smi-qx_rtx-3080_v13.xml": {"clocks.locked": ["0000:0c:00.0"], OFF: ["0000:0c:00.0"]},
    # One of four GPUs was kept of this output: the others are not taken for well.
    "smi-qx_a100-sxm4_v12.xml": {"presence.error": [""], OFF: ["0000:01:00.0"]},
    # Ill.
    "smi-qx_MOCK_gb200_gpu1_lost.xml": {
        "presence.lost": ["0000:0b:00.0"],
        "memory.uncorrected": ["0000:0a:00.0"],
        "memory.remap_failure": ["0000:0a:00.0"],
    },
    "smi-qx_MOCK_gb200_fabric_degraded.xml": {"fabric.health": ["0000:0b:00.0"]},
    "extra/smi-table_ERR_row.txt": {"presence.unreadable": ["0000:91:00.0"]},
    "extra/smi-query_unknown-error_row.csv": {"presence.unreadable": ["0000:02:00.0"]},
    "extra/smi_stdout_library-mismatch_rc18.txt": {"driver.library_mismatch": [""]},
    "extra/page-retirement_8gpu_full.txt": {
        "memory.retirement_pending": ["0002:00:00.0", "0004:00:00.0", "0006:00:00.0", "0008:00:00.0"],
        "memory.retired_pages": ["0001:00:00.0", "0002:00:00.0", "0006:00:00.0", "0008:00:00.0"],
    },
}  # fmt: skip
#: What is no output that health could judge: of other tools, and of nvidia-smi's lists of links.
OTHERS = {
    "extra/dmesg_fallen-off-bus_no-xid.log", "extra/dmesg_xid119.log", "extra/fabricmanager.log",
    "extra/gpu-burn_8gpu.log", "extra/gpu-stream_sm100.log", "extra/lspci-nn_a10.txt", "extra/lspci-nn_a100.txt",
    "extra/nccl-tests_allreduce_8xA100-40GB.log", "extra/nvbandwidth_gh200.log", "extra/nvlink-status_a10.txt",
    "extra/nvlink-status_a100.txt", "extra/nvlink-status_a100_all_inactive.txt",
    "extra/nvlink-status_a100_good.txt", "sb-sysinfo_a100_nd96asr_v4_accelerator.json",
    "sb-sysinfo_v100_accelerator.json",
}  # fmt: skip
REMARKS = ("power.limit", "clocks.locked")


def test_every_file_is_known_here() -> None:
    found = {*names("*.xml"), *names("*.txt"), *names("*.json")}
    found |= {f"extra/{path.name}" for path in (SAMPLES / "extra").iterdir()}
    assert found == set(FINDINGS) | OTHERS


def judged(name: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main(["health", "--from-capture", str(SAMPLES / name), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert code == document["exit_code"]
    (host,) = document["hosts"].values()
    return code, host


@pytest.mark.parametrize("name", FINDINGS)
def test_what_is_found_in_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, host = judged(name, capsys)
    found: dict[str, list[str]] = {}
    for finding in host["findings"]:
        found.setdefault(finding["id"].removeprefix("health."), []).append(finding.get("gpu") or "")
    assert {rule: sorted(gpus) for rule, gpus in found.items()} == FINDINGS[name]
    errors = [finding for finding in host["findings"] if finding["severity"] == "error"]
    assert code == (4 if errors else 0)
    assert all(finding["remedy"] for finding in host["findings"])
    if not set(found) - set(REMARKS):
        assert host["status"] == "healthy"


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_what_nobody_can_judge_is_refused_by_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--from-capture", str(SAMPLES / name)]) == 2
    assert Path(name).name in capsys.readouterr().err
