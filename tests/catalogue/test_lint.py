"""The shipped catalogue is well; and each rule fires on an input that breaks it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fleet.catalogue.data_files import data, data_names
from fleet.catalogue.entries import Files, read_overlay
from fleet.catalogue.lint import ALL_RULES, check, faults
from fleet.core.errors import InputError

#: (file, section, what a site writes, fault): the shape is wrong.
MISSHAPEN = [
    ("gpus", "gpus", "{id: t4, memory: 16}", "gpus t4: memory"),
    ("gpus", "gpus", "{id: t4, memory_gb: lots}", "gpus t4: memory_gb: must be number"),
    ("gpus", "gpus", "{id: new, name: New}", "gpus new: missing: nvml_name, pci, architecture"),
    ("gpus", "gpus", "{id: t4, min_driver: 550.12}", "gpus t4: min_driver: must be string"),
    ("gpus", "gpus", '{id: t4, pci: ["1EB8"]}', "gpus t4: pci[0]"),
    ("gpus", "gpus", "{id: t4, pci: [1234]}", "gpus t4: pci[0]: must be string"),
    ("drivers", "branches", '{id: "580", latest: "r580"}', "branches 580: latest"),
    ("drivers", "branches", '{id: "580", end_of_life: soon}', "branches 580: end_of_life"),
    ("gpus", "cards", "{id: t4}", "cards"),
    ("xids", "xids", '{id: "079", mnemonic: NEW, severity: info}', "xids 079: id"),
    ("xids", "xids", '{id: "79", severity: fatal}', "xids 79: severity"),
    ("xids", "sxids", '{id: "20034-35"}', "sxids 20034-35: id"),
    (
        "xids",
        "nvlink5",
        '{id: 144-SAW_MVB-0x00000001, status: "1"}',
        "nvlink5 144-SAW_MVB-0x00000001: status",
    ),
]

#: The same where the shape is right; one at least for every rule.
BROKEN = [
    # sources and what is not verified
    ("gpus", "gpus", "{id: t4, source: nowhere}", "gpus t4: source nowhere: there is no such source"),
    (
        "gpus", "gpus",
        "{id: t4, sm_count: 40, unverified_fields: [sms]}",
        "gpus t4: unverified_fields: there is no field sms",
    ),
    # architectures
    (
        "gpus", "architectures",
        "{id: ampere, first_branch: 451}",
        "architectures ampere: first_branch 451: there is no such branch",
    ),
    ("gpus", "architectures", "{id: turing, last_branch: 390}", "architectures turing: its last branch is older"),
    (
        "gpus", "architectures",
        '{id: volta, fp32_lanes_per_sm: {"7.2": 64}}',
        "architectures volta: fp32_lanes_per_sm: 7.2",
    ),
    # references of GPUs
    ("gpus", "gpus", "{id: t4, architecture: touring}", "gpus t4: there is no architecture touring"),
    ("gpus", "gpus", '{id: t4, compute_capability: "8.6"}', "gpus t4: turing has no compute capability 8.6"),
    ("gpus", "gpus", "{id: t4, first_branch: 411}", "gpus t4: first_branch 411: there is no branch 411"),
    ("gpus", "gpus", "{id: b200, first_branch: 535}", "gpus b200: first_branch 535: blackwell begins with 570"),
    ("gpus", "gpus", '{id: l4, min_driver: "535.54.03"}', "gpus l4: min_driver 535.54.03 is not of first_branch 525"),
    ("gpus", "gpus", '{id: l4, first_listed: "525.125.06"}', "gpus l4: first_listed 525.125.06 is newer"),
    (
        "gpus", "gpus",
        "{id: p40, open_kernel_modules: possible}",
        "gpus p40: open_kernel_modules possible, but impossible",
    ),
    # PCI ids
    ("gpus", "gpus", '{id: l4, pci: ["1eb8"]}', "gpus l4: PCI id 1eb8 is also that of t4"),
    ("gpus", "gpus", '{id: a2, pci: ["25b6:10de:14a9"]}', "gpus a2: PCI id 25b6:10de:14a9 is also that of a16"),
    # figures
    ("gpus", "gpus", "{id: t4, peaks: {fp32: 81}}", "gpus t4: fp32 81 TFLOPS of 40 SM would need 15.82 GHz"),
    ("gpus", "gpus", "{id: t4, sm_count: 400}", "gpus t4: fp32 8.1 TFLOPS of 400 SM would need 0.16 GHz"),
    ("gpus", "gpus", "{id: t4, peaks: {fp16_tensor: 6.5}}", "gpus t4: peaks.fp16_tensor 6.5 is 0.8 times fp32"),
    (
        "gpus", "gpus",
        "{id: t4, memory_bandwidth_gb_per_s: 32}",
        "gpus t4: memory_bandwidth_gb_per_s 32 is not plausible",
    ),
    ("gpus", "gpus", "{id: t4, limits: {fp16_tensor: 25}}", "gpus t4: limits.fp16_tensor 25 is 38% of the peak 65"),
    ("gpus", "gpus", "{id: t4, limits: {fp16_tensor: 66}}", "gpus t4: limits.fp16_tensor 66 is 102% of the peak 65"),
    (
        "gpus", "gpus",
        "{id: t4, limits: {memory_bandwidth_gb_per_s: 100}}",
        "gpus t4: limits.memory_bandwidth_gb_per_s 100 is 31%",
    ),
    (
        "gpus", "gpus",
        "{id: t4, limits: {host_link_gb_per_s: 5}}",
        "gpus t4: limits.host_link_gb_per_s 5 is 32% of the peak 15.74",
    ),
    (
        "gpus", "gpus",
        "{id: h100-sxm5-80gb, limits: {peer_gb_per_s: 160}}",
        "gpus h100-sxm5-80gb: limits.peer_gb_per_s 160 is 36% of the peak 450",
    ),
    (
        "gpus", "gpus",
        "{id: h100-sxm5-80gb, limits: {all_reduce_gb_per_s: 460}}",
        "gpus h100-sxm5-80gb: limits.all_reduce_gb_per_s 460 is 102% of the peak 450",
    ),
    # branches
    ("drivers", "branches", '{id: "580", versions: ["570.86.15"]}', "branches 580: 570.86.15 is not a version of it"),
    (
        "drivers", "branches",
        '{id: "580", latest: "580.95.05"}',
        "branches 580: latest 580.95.05 is older than 580.178.04",
    ),
    ("drivers", "branches", '{id: "580", end_of_life: "2025-07"}', "branches 580: ends (2025-07) before it begins"),
    (
        "drivers", "branches",
        '{id: r700, type: production, latest: "700.1", max_cuda: "14.0", kernel_modules: [open], versions: []}',
        "branches r700: the id must be the number",
    ),
    # toolkits
    ("cuda", "toolkits", '{id: "12.8.1", branch: 571}', "toolkits 12.8.1: there is no branch 571"),
    (
        "cuda", "toolkits",
        '{id: "12.8.1", native_driver: "575.51.03"}',
        "toolkits 12.8.1: native_driver 575.51.03 is not of branch 570",
    ),
    ("cuda", "toolkits", '{id: "12.8.9", branch: 580}', "toolkits 12.8.9: branch 580 is that of CUDA 13.0"),
    ("cuda", "toolkits", '{id: "14.0.0", branch: 620}', "toolkits 14.0.0: there is no major 14"),
    ("cuda", "toolkits", "{id: newest, branch: 620}", "toolkits newest: 'newest' is not a version"),
    (
        "cuda", "forward_compatibility",
        '{id: "13.0", base_branches: [536]}',
        "forward_compatibility 13.0: there is no branch 536",
    ),
    # systems
    (
        "operating_systems", "releases",
        "{id: debian-12, package_family: cuda_deb}",
        "releases debian-12: there is no package family cuda_deb",
    ),
    (
        "operating_systems", "releases",
        '{id: debian-12, version: "13"}',
        "releases debian-13: debian-12 is debian 13 too",
    ),
    (
        "operating_systems", "package_families",
        "{id: cuda_apt, imex: [{to: 580, packages: [a]}, {from: 580, packages: [b]}]}",
        "package_families cuda_apt: imex: rows overlap",
    ),
    # sets of driver packages
    (
        "driver_packages", "sets",
        "{id: nvidia-ubuntu, branches: {to: 595}}",
        "sets nvidia-ubuntu-590: another set of nvidia names the same branches for ubuntu",
    ),
    # dates
    (
        "operating_systems", "releases",
        '{id: debian-12, end_of_life: "2026-02-30"}',
        "releases debian-12: end_of_life 2026-02-30 is not a day",
    ),
    # floors
    ("docker", "floors", '{id: engine, version: "29.0.0"}', "floors engine: 29.0.0 lacks the fix of CVE-2026-34040"),
    (
        "container_toolkit", "floors",
        '{id: container_toolkit, version: "1.17.8"}',
        "floors container_toolkit: 1.17.8 lacks the fix of CVE-2026-24260",
    ),
    # advisories
    (
        "advisories", "advisories",
        '{id: CVE-2025-31133, fixed_in: ["1.2.8", "1.2.9", "1.3.3"]}',
        "advisories CVE-2025-31133: fixed_in: 1.2 is there twice",
    ),
    (
        "advisories", "advisories",
        '{id: CVE-2026-53492, first_affected: "2.2.0"}',
        "advisories CVE-2026-53492: is fixed in 2.1.9, and first there in 2.2.0",
    ),
    # builds of torch
    ("torch", "builds", '{id: 2.7-cu128, variant: cu129}', "builds 2.7-cu128: builds for CUDA 12.8 are called cu128"),
    ("torch", "builds", '{id: 2.7-cu128, cuda: "12.7"}', "builds 2.7-cu128: there is no CUDA 12.7 in cuda.yaml"),
    (
        "torch", "builds",
        '{id: 2.7-cu128, cuda_release: "12.6.3"}',
        "builds 2.7-cu128: cuda_release 12.6.3 is not of CUDA 12.8",
    ),
    (
        "torch", "builds",
        '{id: 2.7-cu128, cuda_release: "12.8.7"}',
        "builds 2.7-cu128: cuda_release 12.8.7: there is no such toolkit",
    ),
    (
        "torch", "builds",
        '{id: 2.7-cu128, arch_list: ["7.5", "8.4", "12.0"]}',
        "builds 2.7-cu128: arch_list: no GPU in the catalogue has compute capability 8.4",
    ),
    (
        "torch", "builds",
        '{id: 2.7-cu126, arch_list: ["9.0", "10.0"]}',
        "builds 2.7-cu126: arch_list: CUDA 12.6 makes no code for 10.0",
    ),
    (
        "torch", "builds",
        '{id: 2.9-cu130, arch_list_aarch64: ["7.0", "12.0"]}',
        "builds 2.9-cu130: arch_list_aarch64: CUDA 13.0 makes no code for 7.0",
    ),
    (
        "torch", "builds",
        '{id: 2.7-cu126, arch_list: ["9.0", "8.0"]}',
        "builds 2.7-cu126: arch_list: must go from the oldest",
    ),
    ("torch", "builds", '{id: 2.7-cu128, ptx: "8.9"}', "builds 2.7-cu128: ptx 8.9 is not of arch_list"),
    (
        "torch", "builds",
        '{id: 2.7-cu128, triton: {"2.8.0": "3.4.0"}}',
        "builds 2.7-cu128: triton: 2.8.0 is not one of its versions",
    ),
    (
        "torch", "builds",
        '{id: 2.7-cu128, versions: ["2.7.0", "2.8.0"]}',
        "builds 2.8-cu128: 2.7-cu128 is 2.8.0 cu128 too",
    ),
    ("torch", "builds", "{id: 2.7-cu128, pypi_default: true}", "builds 2.7-cu128: pip brings 2.7-cu126 of 2.7.0"),
    # cuDNN
    ("cudnn", "releases", '{id: "8.9", last: "8.8"}', "releases 8.9: ends (8.8) before it begins"),
    ("cudnn", "releases", '{id: "8.9", first: "8.5"}', "releases 8.9: 8.0 covers 8.5 too"),
    # images
    ("images", "images", "{id: Lab/Train, origin: given}", "images Lab/Train: 'Lab/Train' is not the name of an image"),
    (
        "images", "images",
        "{id: docker.io/lab/train, origin: given}",
        "images docker.io/lab/train: the name must be spelled lab/train:latest",
    ),
    (
        "images", "images",
        '{id: "lab/train:1", origin: given, torch: "2.7.0", variant: cu124}',
        "images lab/train:1: there is no build of torch 2.7.0 cu124",
    ),
    ("images", "images", '{id: "lab/a:1", origin: given, cuda: "12.7"}', "images lab/a:1: there is no CUDA 12.7"),
    (
        "images", "images",
        '{id: "lab/train:1", origin: given, cuda: "12.8", arch_list: ["3.7"]}',
        "images lab/train:1: arch_list: CUDA 12.8 makes no code for 3.7",
    ),
    (
        "images", "images",
        '{id: "pytorch/pytorch:2.7.0-cuda12.8-cudnn9", torch: "2.7.1"}',
        "images pytorch/pytorch:2.7.0-cuda12.8-cudnn9: the tag does not say torch 2.7.1 and CUDA 12.8",
    ),
    (
        "images", "images",
        "{id: pytorch/pytorch:2.7.0-cuda12.4-cudnn9, origin: catalogue, torch: 2.7.0, cuda: '12.4', flavours: [devel]}",
        "images pytorch/pytorch:2.7.0-cuda12.4-cudnn9: there is no build of torch 2.7.0 for CUDA 12.4",
    ),
    (
        "images", "images",
        '{id: "pytorch/pytorch:2.x-cuda12.4-cudnn9", origin: catalogue, flavours: [devel]}',
        "images pytorch/pytorch:2.x-cuda12.4-cudnn9: tag '2.x-cuda12.4-cudnn9-runtime': '2.x' is not a version",
    ),
    (
        "images", "images",
        '{id: "nvcr.io/nvidia/pytorch:25.08-py3", flavours: [devel]}',
        "images nvcr.io/nvidia/pytorch:25.08-py3: origin ngc: only official tags have flavours",
    ),
    (
        "images", "images",
        "{id: pytorch/pytorch:2.7.0-cuda12.8-cudnn8, origin: catalogue, torch: 2.7.0, cuda: '12.8', flavours: [devel]}",
        "images pytorch/pytorch:2.7.0-cuda12.8-cudnn8: the tag does not have the cuDNN of its torch",
    ),
    (
        "images", "nonexistent",
        '{id: "pytorch/pytorch:2.7.0-cuda11.8-cudnn8", correct: "pytorch/pytorch:2.7.0-cuda11.8-cudnn7"}',
        "nonexistent pytorch/pytorch:2.7.0-cuda11.8-cudnn8: pytorch/pytorch:2.7.0-cuda11.8-cudnn7 is not among",
    ),
    (
        "images", "nonexistent",
        '{id: "pytorch/pytorch:2.7.0-cuda11.8-cudnn9", reason: spelling, why: wrong, correct: "lab/train:1"}',
        "nonexistent pytorch/pytorch:2.7.0-cuda11.8-cudnn9: is among the images",
    ),
    ("images", "mirrors", "{id: lab/mirror, of: lab/no}", "mirrors lab/mirror: there are no images of lab/no"),
    # what was not verified
    (
        "torch", "builds",
        "{id: 2.9-cu128, unverified_fields: [arch_list], arch_list: [\"9.0\"]}",
        "builds 2.9-cu128: arch_list: not verified, and no note says why",
    ),
    # Xids and SXids
    ("xids", "xids", '{id: "79", immediate: PRAY}', "xids 79: there is no action PRAY"),
    ("xids", "sxids", '{id: "20034", immediate: PRAY}', "sxids 20034: there is no action PRAY"),
    (
        "xids", "nvlink5",
        "{id: 144-SAW_MVB-0x00000001, investigatory: [IGNORE, PRAY]}",
        "nvlink5 144-SAW_MVB-0x00000001: there is no action PRAY",
    ),
    ("xids", "xids", '{id: "999", mnemonic: NEW, severity: info}', "xids 999: has no meaning"),
    ("xids", "xids", '{id: "1", meaning: something}', "xids 1: has a meaning though it is unused"),
    ("xids", "xids", '{id: "80", mnemonic: GSP_ERROR}', "xids 120: GSP_ERROR is the mnemonic of 80 too"),
    ("xids", "xids", '{id: "74", applies_to: [ampere, amper]}', "xids 74: there is no architecture amper"),
    (
        "xids", "nvlink5",
        "{id: 144-SAW_MVB-0x00000001, xid: 998}",
        "nvlink5 144-SAW_MVB-0x00000001: there is no Xid 998",
    ),
    (
        "xids", "nvlink5",
        '{id: 144-SAW_MVB-0x00000002, status: "0x00000001"}',
        "nvlink5 144-SAW_MVB-0x00000002: 144-SAW_MVB-0x00000001 is SAW_MVB with 0x00000001 too",
    ),
    (
        "xids", "sxids",
        '{id: "23010-23020", name: new, fatal: true, immediate: IGNORE}',
        "sxids 23010-23020: overlaps 23001-23017",
    ),
    (
        "xids", "sxids",
        '{id: "29002-29001", name: new, fatal: true, immediate: IGNORE}',
        "sxids 29002-29001: ends before it begins",
    ),
]  # fmt: skip


def entry(text: str) -> str:
    """An entry as a site writes it: with source and verified where the case is not about them."""
    source = "" if "source:" in text else ", source: a test of the catalogue"
    return f"{text[:-1]}{source}, verified: true}}"


def site(folder: Path, file: str, section: str, *entries: str) -> Files:
    text = f"{section}:\n" + "".join(f"  - {one}\n" for one in entries)
    (folder / f"{file}.yaml").write_text(text, encoding="utf-8")
    return Files(read_overlay(folder))


def test_the_shipped_catalogue_is_well() -> None:
    assert [f"{fault.file}: {fault}" for fault in faults(Files())] == []
    assert check(Files()) > 200


def test_every_entry_says_where_it_comes_from() -> None:
    files = Files()
    for file, section in files.sections():
        for one in files.section(file, section):
            assert one.provenance.source().strip(), f"{file} {section} {one.id}"
            assert isinstance(one.about["verified"], bool), f"{file} {section} {one.id}"


def test_every_source_named_is_used() -> None:
    files = Files()
    for file in data_names():
        text = {
            words
            for name, section in files.sections()
            if name == file
            for one in files.section(file, section)
            for words in one.provenance.layers[0].sources.values()
        }
        unused = [
            key for key, words in data(file)["sources"].items() if not any(words in one for one in text)
        ]
        assert unused == [], file


@pytest.mark.parametrize(("file", "section", "text", "message"), MISSHAPEN + BROKEN)
def test_what_is_wrong_is_found(tmp_path: Path, file: str, section: str, text: str, message: str) -> None:
    found = faults(site(tmp_path, file, section, entry(text)))
    assert [str(fault) for fault in found if str(fault).startswith(message)], list(map(str, found))


def test_every_rule_fires_on_something(tmp_path: Path) -> None:
    silent = set(ALL_RULES)
    for number, (file, section, text, _) in enumerate(BROKEN):
        folder = tmp_path / str(number)
        folder.mkdir()
        files = site(folder, file, section, entry(text))
        silent -= {rule for rule in silent if any(rule(files))}
    assert silent == set()


def test_an_id_that_stands_there_twice_is_found(tmp_path: Path) -> None:
    text = entry("{id: t4, memory_gb: 16}")
    assert [str(fault) for fault in faults(site(tmp_path, "gpus", "gpus", text, text))] == [
        "gpus t4: stands there 2 times"
    ]


def test_faults_come_with_file_line_and_entry(tmp_path: Path) -> None:
    files = site(
        tmp_path, "gpus", "gpus", entry("{id: l4, memory_gb: 24}"), entry("{id: t4, architecture: touring}")
    )
    with pytest.raises(InputError) as caught:
        check(files)
    (problem,) = caught.value.problems
    assert str(problem) == f"{tmp_path}/gpus.yaml:3:5: gpus t4: there is no architecture touring"


def test_a_fault_that_a_site_causes_in_a_shipped_entry_points_at_the_shipped_file(tmp_path: Path) -> None:
    files = site(tmp_path, "operating_systems", "releases", entry('{id: debian-12, version: "13"}'))
    with pytest.raises(InputError) as caught:
        check(files)
    assert str(caught.value.problems[0]).startswith("operating_systems.yaml:")


def test_importing_the_catalogue_reads_nothing() -> None:
    program = (
        "import sys, fleet.catalogue, fleet.catalogue.catalogue as c; c.load()\n"
        "print(sorted({'yaml', 'jsonschema', 'jsonschema_rs', 'fleet.catalogue.gpus'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
