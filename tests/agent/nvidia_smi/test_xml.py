"""What is peculiar to ``-q -x``: its DTD, entities, lost GPUs, processes, MIG, and output that is no XML."""

from __future__ import annotations

import builtins
import socket
from typing import Any

import pytest

from fleet.agent.nvidia_smi import xml
from tests.agent.nvidia_smi.outputs import ADDRESSES, UUIDS, gpu, xml_of
from tests.agent.nvidia_smi.whole import assert_document

DRIVER = "580.105.08"
LOST = dict.fromkeys(
    (
        "fb_memory_usage",
        "utilization",
        "remapped_rows",
        "gpu_temp",
        "instant_power_draw",
        "average_power_draw",
        "graphics_clock",
        "sm_clock",
    ),
    "GPU is lost",
)


def two(**second: str) -> str:
    return xml_of(DRIVER, [gpu(DRIVER, 0), gpu(DRIVER, 1, uuid=UUIDS[1], pci_bus_id=ADDRESSES[1], **second)])


@pytest.fixture
def nothing_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither files nor connections can be had."""

    def refuse(*what: Any, **more: Any) -> Any:
        raise AssertionError(f"opened {what}")

    monkeypatch.setattr(builtins, "open", refuse)
    monkeypatch.setattr(socket, "socket", refuse)


@pytest.mark.usefixtures("nothing_opened")
@pytest.mark.parametrize("dtd", ["nvsmi_device_v12.dtd", "/etc/passwd", "http://192.0.2.1/nvsmi.dtd"])
def test_the_dtd_that_the_file_names_is_never_fetched(dtd: str) -> None:
    document = xml.parse(xml_of(DRIVER).replace("nvsmi_device_v13.dtd", dtd))
    assert (document["status"], document["devices"][0]["name"]) == ("ok", "NVIDIA Testbed T1")


@pytest.mark.usefixtures("nothing_opened")
@pytest.mark.parametrize(
    "declaration",
    [
        '<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;">',
        '<!ENTITY a SYSTEM "file:///etc/passwd">',
        '<!ENTITY % a SYSTEM "http://192.0.2.1/x"> %a;',
    ],
)
def test_a_file_that_declares_entities_is_not_read(declaration: str) -> None:
    hostile = xml_of(DRIVER).replace('.dtd">', f'.dtd" [{declaration}]>').replace("NVIDIA Testbed T1", "&a;")
    document = xml.parse(hostile)
    assert_document(document)
    assert (document["status"], document["devices"]) == ("error", [])


def test_an_entity_that_nobody_declared_makes_no_value() -> None:
    document = xml.parse(xml_of(DRIVER).replace("NVIDIA Testbed T1", "&unheard;"))
    assert_document(document)
    assert all(device["name"] != "&unheard;" for device in document["devices"])


def test_nesting_without_end_is_passed_over() -> None:
    deep = "<a>" * 5000 + "</a>" * 5000
    document = xml.parse(xml_of(DRIVER).replace("\t\t<fan_speed>", deep + "<fan_speed>"))
    assert (document["status"], document["devices"][0]["memory_total_mib"]) == ("ok", 81920)


def test_one_lost_gpu_is_lost_and_the_other_is_whole() -> None:
    document = xml.parse(two(**LOST))
    assert_document(document)
    well, lost = document["devices"]
    assert (document["status"], document["message"]) == ("gpu_error", "0000:3d:00.0: GPU is lost")
    assert (well["status"], well["memory_total_mib"]) == ("ok", 81920)
    assert (lost["status"], lost["message"], lost["uuid"]) == ("lost", "GPU is lost", UUIDS[1])
    for path in ("temperature_c", "power_draw_w", "remapped_rows.failure", "remapped_rows.histogram"):
        assert lost["absent"][path] == {"reason": "gpu_lost", "nvml_error": None, "text": "GPU is lost"}
    assert lost["memory_total_mib"] is None


def test_a_gpu_that_is_only_named_by_a_sentence_is_among_the_devices() -> None:
    said = "Unable to determine the device handle for GPU 0000:3D:00.0: GPU is lost.  Reboot the system\n"
    alone = xml_of(DRIVER).replace("<attached_gpus>1", "<attached_gpus>2")
    for printed in (said + alone, alone + said):
        document = xml.parse(printed)
        assert_document(document)
        assert [device["status"] for device in document["devices"]] == ["ok", "lost"]
        assert document["devices"][1]["absent"]["uuid"]["reason"] == "gpu_lost"
        assert document["devices"][1]["printed_address"] == "0000:3D:00.0"


def test_a_gpu_that_waits_for_a_reset_is_no_healthy_one() -> None:
    document = xml.parse(two(gpu_temp="[GPU requires reset]"))
    assert [device["status"] for device in document["devices"]] == ["ok", "reset_required"]
    assert document["status"] == "gpu_error"


def test_one_bad_sensor_leaves_the_gpu_as_it_is() -> None:
    document = xml.parse(two(fan_speed="Unknown Error"))
    device = document["devices"][1]
    assert (document["status"], device["status"], device["fan_speed_percent"]) == ("ok", "ok", None)
    assert device["absent"]["fan_speed_percent"] == {
        "reason": "error",
        "nvml_error": None,
        "text": "Unknown Error",
    }


def test_a_gpu_without_any_vital_value_does_not_answer() -> None:
    document = xml.parse(two(fb_memory_usage="Unknown Error", gpu_temp="Unknown Error"))
    assert_document(document)
    assert [device["status"] for device in document["devices"]] == ["ok", "error"]
    assert document["devices"][1]["message"] == "the GPU does not answer: Unknown Error"
    one_sensor = xml.parse(two(gpu_temp="Unknown Error"))
    assert [device["status"] for device in one_sensor["devices"]] == ["ok", "ok"]


def test_fewer_gpus_than_are_attached_is_not_well() -> None:
    document = xml.parse(xml_of(DRIVER).replace("<attached_gpus>1", "<attached_gpus>8"))
    assert (document["status"], document["message"]) == ("error", "nvidia-smi tells of 8 GPUs and shows 1")
    assert document["devices"][0]["index"] is None  # which of the eight it is, is not known


def test_output_that_breaks_off_within_a_gpu_keeps_what_was_read_and_says_so() -> None:
    printed = two()
    cut = printed[: printed.rindex("<temperature>")]
    document = xml.parse(cut)
    assert_document(document)
    first, second = document["devices"]
    assert (document["status"], document["message"]) == ("error", "nvidia-smi's output breaks off")
    assert (first["status"], second["status"]) == ("ok", "error")
    assert (second["memory_total_mib"], second["temperature_c"]) == (81920, None)
    assert second["absent"]["temperature_c"]["reason"] == "error"


def process(pid: str, kind: str, name: str, memory: str) -> str:
    parts = f"<pid>{pid}</pid><type>{kind}</type><process_name>{name}</process_name>"
    return f"<process_info>{parts}<used_memory>{memory}</used_memory></process_info>\n"


PROCESSES = (
    process("4711", "C", '/opt/train --text "a < b & c" &amp;', "1328 MiB")
    + process("4712", "G", "/usr/lib/xorg/Xorg", "N/A")
    + process("4713", "M+C", "nvidia-cuda-mps-server", "25 MiB")
    + process("4711", "G", "/opt/train", "4 MiB")
)


def test_processes_have_their_kind_memory_and_command_whatever_their_names_hold() -> None:
    document = xml.parse(xml_of(DRIVER, processes=PROCESSES))
    assert_document(document)
    device = document["devices"][0]
    assert [(one["pid"], one["kind"], one["memory_used_mib"]) for one in device["processes"]] == [
        (4711, "compute", 1328),
        (4712, "graphics", None),
        (4713, "mps", 25),
    ]
    assert device["processes"][0]["command"] == '/opt/train --text "a < b & c" &'
    assert device["absent"]["processes.4712.memory_used_mib"]["text"] == "N/A"


def test_a_process_without_a_number_makes_the_list_unknown_not_shorter() -> None:
    document = xml.parse(xml_of(DRIVER, processes=PROCESSES.replace("4712", "[Not Supported]")))
    assert_document(document)
    device = document["devices"][0]
    assert device["processes"] is None
    assert device["absent"]["processes"]["text"] == "Not Supported"


MIG_DEVICES = """
<mig_devices>
  <mig_device><index>0</index><gpu_instance_id>2</gpu_instance_id><compute_instance_id>0</compute_instance_id>
    <fb_memory_usage><total>40448 MiB</total><used>26 MiB</used></fb_memory_usage></mig_device>
  <mig_device><index>1</index><gpu_instance_id>9</gpu_instance_id><compute_instance_id>1</compute_instance_id>
    <fb_memory_usage><total>N/A</total></fb_memory_usage></mig_device>
</mig_devices>
<serial>"""


def test_with_mig_on_the_slices_are_listed_and_what_mig_hides_is_said_to_be_hidden() -> None:
    hidden = gpu(DRIVER, 0, current_mig="Enabled", gpu_util="N/A", memory_util="N/A", remapped_rows="N/A")
    document = xml.parse(xml_of(DRIVER, [hidden]).replace("<serial>", MIG_DEVICES))
    assert_document(document)
    device = document["devices"][0]
    assert device["memory_total_mib"] == 81920
    assert [tuple(one.values()) for one in device["mig"]["devices"]] == [
        (None, None, 2, 0, 40448),
        (None, None, 9, 1, None),
    ]
    for path in ("gpu_utilization_percent", "remapped_rows.pending", "remapped_rows.histogram"):
        assert device["absent"][path] == {"reason": "mig", "nvml_error": None, "text": "N/A"}
    assert device["absent"]["fan_speed_percent"]["reason"] == "not_supported"


def test_a_reason_that_only_a_later_driver_knows_is_not_hidden() -> None:
    known = "<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>"
    printed = xml_of(DRIVER).replace(
        known, known.replace("sw_power_cap", "New-Reason_2") + "<other>Active</other>"
    )
    reasons = xml.parse(printed)["devices"][0]["clocks_event_reasons"]
    assert reasons == ["hw_slowdown", "hw_thermal_slowdown", "new_reason_2"]


FABRIC = """
<fabric><state>Completed</state><status>Success</status><cliqueId>4</cliqueId><clusterUuid>c1u5</clusterUuid>
<health><summary>Unhealthy</summary><bandwidth>Degraded</bandwidth>
<route_recovery_in_progress>False</route_recovery_in_progress><route_unhealthy>True</route_unhealthy>
<access_timeout_recovery>N/A</access_timeout_recovery>
<incorrect_configuration>Incorrect System Guid</incorrect_configuration></health></fabric><serial>"""


def test_the_fabrics_state_and_health_are_words_and_flags() -> None:
    device = xml.parse(xml_of(DRIVER).replace("<serial>", FABRIC))["devices"][0]
    assert device["fabric"] == {
        "state": "completed",
        "status": 0,
        "cluster_uuid": "c1u5",
        "clique_id": 4,
        "health": {
            "degraded_bandwidth": True,
            "route_recovery": False,
            "route_unhealthy": True,
            "access_timeout_recovery": None,
            "incorrect_configuration": "incorrect_system_guid",
        },
    }
    assert device["absent"]["fabric.health.access_timeout_recovery"]["text"] == "N/A"


def test_a_draw_of_many_times_the_limit_is_kept_and_named() -> None:
    device = xml.parse(xml_of(DRIVER, [gpu(DRIVER, 0, instant_power_draw="6001.50 W")]))["devices"][0]
    assert (device["power_draw_w"], device["implausible"]) == (6001.5, ["power_draw_w"])


@pytest.mark.parametrize(
    ("name", "says", "path"),
    [
        ("gpu_temp", "nan C", "temperature_c"),
        ("gpu_temp", "63 F", "temperature_c"),
        ("instant_power_draw", "inf W", "power_draw_w"),
        ("reserved", "18446744073709551615 bytes", "memory_reserved_mib"),
        ("replay_counter", "18446744073709551615", "pcie.replays"),
        ("current_link_width", "0x", "pcie.width"),
        ("pci_device_id", "000000DE", "device_id"),
    ],
)
def test_what_is_no_value_is_none_and_its_text_is_kept(name: str, says: str, path: str) -> None:
    changes = {name: says, **({"average_power_draw": says} if name == "instant_power_draw" else {})}
    device = xml.parse(xml_of(DRIVER, [gpu(DRIVER, 0, **changes)]))["devices"][0]
    assert device["absent"][path] == {"reason": "error", "nvml_error": None, "text": says}


@pytest.mark.parametrize(
    "printed", ["", "\n", "<nvidia_smi_log>", "<?xml", "<nvidia_smi_log></nvidia_smi_log>", "\x00\ud800"]
)
def test_output_without_a_gpu_is_an_error_and_no_healthy_host(printed: str) -> None:
    document = xml.parse(printed)
    assert_document(document)
    assert (document["status"], document["devices"]) == ("error", [])
