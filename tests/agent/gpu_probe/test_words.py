"""NVML's numbers and structures as values."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fleet.agent.gpu_probe import words


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (0, []),
        (1, ["gpu_idle"]),
        (0x44, ["sw_power_cap", "hw_thermal_slowdown"]),
        (0x108, ["hw_slowdown", "display_clock_setting"]),
        (0x8000000000000401, ["gpu_idle", "bit_0x400", "bit_0x8000000000000000"]),
    ],
)
def test_reasons_have_names_and_unknown_bits_are_not_dropped(mask: int, names: list[str]) -> None:
    assert words.event_reasons(mask) == names


@pytest.mark.parametrize(
    ("mask", "text"),
    [([0xFFFFFFFF, 0], "0-31"), ([1, 1], "0,64"), ([1 << 63, 3], "63-65"), ([0b1011], "0-1,3"), ([0], None)],
)
def test_cpus_are_a_list_of_ranges(mask: list[int], text: str | None) -> None:
    assert words.cpu_list(mask) == text


def test_the_health_mask_tells_yes_no_and_not_told_apart() -> None:
    assert words.health(0) is None
    assert words.health(0b0001_10_00_10_01) == {
        "degraded_bandwidth": True,
        "route_recovery": False,
        "route_unhealthy": None,
        "access_timeout_recovery": False,
        "incorrect_configuration": "none",
    }
    assert (words.health(5 << 8) or {})["incorrect_configuration"] == "insufficient_nvlinks"
    assert (words.health(15 << 8) or {})["incorrect_configuration"] == "unknown_15"


def test_the_first_structures_have_no_health_and_no_reserved_memory() -> None:
    old = SimpleNamespace(state=3, status=0, clusterUuid=bytes(range(16)), cliqueId=7)
    assert words.values("fabric.state", old, "nvmlDeviceGetGpuFabricInfo") == (
        "completed",
        0,
        "00010203-0405-0607-0809-0a0b0c0d0e0f",
        7,
        None,
    )
    memory = SimpleNamespace(total=2 << 20, used=1 << 20, free=1 << 20)
    assert words.values("memory_total_mib", memory, "nvmlDeviceGetMemoryInfo") == (2, 1, 1, None)


def test_ids_are_split_into_device_and_subsystem() -> None:
    answer = SimpleNamespace(busId=b"00000000:1B:00.0", pciDeviceId=0x233010DE, pciSubSystemId=0x16C110DE)
    assert words.values("printed_address", answer, "") == ("00000000:1B:00.0", "2330", "10de", "16c1")


@pytest.mark.parametrize(
    ("raw", "text"), [(b" 580.1 ", "580.1"), (b"", None), ("N/A", None), ("[N/A]", None)]
)
def test_a_text_that_says_nothing_is_none(raw: bytes | str, text: str | None) -> None:
    assert words.text(raw) == text


def test_a_number_without_a_word_is_an_error_and_not_a_guess() -> None:
    for path in ("recovery_action", "compute_mode", "brand", "architecture"):
        with pytest.raises(words.Unknown, match="99"):
            words.values(path, 99, path)


def test_units() -> None:
    assert words.values("power_draw_w", 69123, "") == [69.123]
    assert words.values("power_limit_min_w", [200000, 700000], "") == [200.0, 700.0]
    assert (words.cuda_version(12080), words.cuda_version(0)) == ("12.8", None)


def test_a_profile_is_the_end_of_a_mig_devices_name() -> None:
    assert words.of_mig_device("profile", "NVIDIA H100 80GB HBM3 MIG 3g.40gb") == "3g.40gb"
    assert words.of_mig_device("profile", "NVIDIA H100 80GB HBM3 MIG 1g.10gb+me") == "1g.10gb+me"
    assert words.of_mig_device("profile", "NVIDIA H100 80GB HBM3") is None
