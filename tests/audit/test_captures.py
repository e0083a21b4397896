"""A saved output of nvidia-smi as a probe document, whatever format it is in, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.audit import captures
from fleet.core.errors import InputError
from tests.agent.nvidia_smi.outputs import text_of, xml_of
from tests.agent.nvidia_smi.test_table import NEW
from tests.agent.nvidia_smi.test_text import FAN
from tests.agent.nvidia_smi.whole import assert_document

DRIVER = "580.105.08"
QUERY = "index, name, memory.total [MiB]\n0, NVIDIA Testbed T1, 81920 MiB\n"


@pytest.mark.parametrize(
    ("content", "name", "driver"),
    [
        (xml_of(DRIVER), "NVIDIA Testbed T1", DRIVER),
        ("Last login: today\n" + xml_of(DRIVER), "NVIDIA Testbed T1", DRIVER),
        (text_of(DRIVER), "NVIDIA Testbed T1", DRIVER),
        (text_of(DRIVER).replace("\n", "\r\n"), "NVIDIA Testbed T1", DRIVER),
        (FAN, "NVIDIA Testbed W2", None),
        (QUERY, "NVIDIA Testbed T1", None),
        (NEW, "NVIDIA Testbed T1", DRIVER),
    ],
)
def test_the_format_is_seen_from_the_content(
    tmp_path: Path, content: str, name: str, driver: str | None
) -> None:
    file = tmp_path / "capture"
    file.write_bytes(content.encode())
    document = captures.load(file)
    assert_document(document)
    assert (document["status"], document["devices"][0]["name"]) == ("ok", name)
    assert document["driver_version"] == driver


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_files_saved_by_other_shells_are_read(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "capture").write_text(xml_of(DRIVER), encoding=encoding)
    assert captures.load(str(tmp_path / "capture"))["status"] == "ok"


def test_a_saved_failure_is_a_document_of_that_status(tmp_path: Path) -> None:
    (tmp_path / "capture").write_text("Failed to initialize NVML: Driver/library version mismatch\n")
    document = captures.load(tmp_path / "capture")
    assert_document(document)
    assert (document["status"], document["devices"]) == ("driver_library_mismatch", [])


@pytest.mark.parametrize("content", ["", "\n\n", "hello\n", "0, NVIDIA Testbed T1, 81920\n", "\x00\x01\x02"])
def test_what_is_no_output_is_refused_with_the_files_name_and_what_to_save(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "capture").write_text(content)
    with pytest.raises(InputError) as refused:
        captures.load(tmp_path / "capture")
    assert str(tmp_path / "capture") in str(refused.value)
    assert "nvidia-smi -q -x" in (refused.value.remedy or "")


def test_a_file_that_is_not_there_or_is_a_folder_is_bad_input(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError, match="cannot read the capture"):
            captures.load(path)
