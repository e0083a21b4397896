"""A site's own entries are laid over the shipped ones, field by field, and every value knows its file."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.catalogue.catalogue import Catalogue, load
from fleet.catalogue.data_files import data, data_names
from fleet.catalogue.images import NoSuchTag
from fleet.catalogue.versions import driver_version
from fleet.core.errors import InputError

Site = Callable[..., Path]

OWN_CARD = """
sources: {lab: measured in the lab}
gpus:
  - id: prototype
    name: Prototype
    nvml_name: NVIDIA Prototype
    pci: ["abcd:10de:0001"]
    architecture: hopper
    compute_capability: "9.0"
    segment: datacenter
    form_factor: PCIe
    source: lab
    verified: false
"""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Writes files of a site's catalogue and gives its directory."""

    def write(**files: str) -> Path:
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
        return tmp_path

    return write


def of(folder: Path) -> Catalogue:
    return load(folder)


def problems(folder: Path) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(folder)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def test_an_entry_is_added_beside_the_shipped_ones(site: Site) -> None:
    catalogue = of(site(gpus=OWN_CARD))
    card = catalogue.gpus.by_pci("ABCD", "10de", "0001")
    assert card is not None
    assert card.id == "prototype"
    assert card.provenance.source() == "measured in the lab"
    assert not card.provenance.verified
    assert len(catalogue.gpus.all) == len(load().gpus.all) + 1


def test_a_field_is_overridden_and_the_others_keep_their_origin(site: Site) -> None:
    folder = site(
        gpus="gpus:\n  - {id: t4, limits: {fp16_tensor: 40}, memory_mib: 15109,"
        " source: nvidia-smi here, verified: true}\n"
    )
    card = of(folder).gpus.find("t4")
    assert (card.memory_mib, card.memory_gb, card.limits) == (
        15109,
        16,
        {"fp16_tensor": 40, "memory_bandwidth_gb_per_s": 183},
    )
    known = card.provenance
    assert known.files == ("gpus.yaml", str(folder / "gpus.yaml"))
    assert known.layer("memory_mib").file == str(folder / "gpus.yaml")
    assert known.layer("memory_gb").file == "gpus.yaml"
    assert known.source("limits.fp16_tensor") == "nvidia-smi here"
    assert known.caveat("memory_mib") == ""
    assert known.caveat("first_branch") == "not verified: first_branch"
    assert load().gpus.find("t4").memory_mib == 15360


def test_a_site_that_did_not_verify_its_value_is_not_believed_more_than_it_says(site: Site) -> None:
    folder = site(gpus="gpus:\n  - {id: t4, sm_count: 40, source: hearsay of a colleague, verified: false}\n")
    known = of(folder).gpus.find("t4").provenance
    assert known.caveat("sm_count") == "not verified: sm_count"
    assert known.caveat("memory_gb") == ""
    assert not known.verified


def test_one_key_of_a_mapping_is_overridden(site: Site) -> None:
    folder = site(gpus="gpus:\n  - {id: t4, peaks: {fp32: 8.0}, source: our own run, verified: true}\n")
    card = of(folder).gpus.find("t4")
    assert (card.peaks["fp32"], card.peaks["fp16_tensor"]) == (8.0, 65)
    assert card.provenance.source("peaks.fp32") == "our own run"
    assert card.provenance.source("peaks.fp16_tensor") != "our own run"


def test_null_takes_a_field_away(site: Site) -> None:
    folder = site(
        drivers='branches:\n  - {id: "580", end_of_life: null, source: we do not plan by it, verified: true}\n'
    )
    branch = of(folder).drivers.branch(580)
    assert branch is not None
    assert branch.end_of_life is None


def test_other_files_are_refused(site: Site) -> None:
    assert problems(site(gpu=OWN_CARD))[0].startswith(
        "gpu.yaml: not a file of the catalogue, which has advisories.yaml"
    )


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such directory"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- id: t4\n", "must be a mapping of section names to lists of entries"),
        ("gpus: {t4: {}}\n", "gpus: must be a list of entries"),
        ("gpus: [t4]\n", "gpus, entry 1: must be a mapping"),
        ("gpus:\n  - {id: 1080, source: x y, verified: true}\n", "its id is missing, or is not text (quote it)"),
        ("gpus:\n  - {id: t4, verified: true}\n", "needs source, and verified: true or false"),
        ("gpus:\n  - {id: t4, source: x y}\n", "needs source, and verified: true or false"),
        ("gpus:\n  - {id: t4, source: [{a: b}], verified: true}\n", "a mapping of fields to these"),
        ("gpus:\n  - {id: t4, source: {default: 3}, verified: true}\n", "a mapping of fields to these"),
        ("sources: [a]\n", "sources: must map names to texts"),
    ],
)  # fmt: skip
def test_files_that_are_not_lists_of_entries_are_refused(site: Site, text: str, message: str) -> None:
    (problem,) = problems(site(gpus=text))
    assert problem.startswith("gpus.yaml: ")
    assert problem.endswith(message)


def test_yaml_that_cannot_be_read_is_refused_with_its_place(site: Site) -> None:
    assert problems(site(gpus="gpus:\n\t- id: t4\n"))[0].startswith("gpus.yaml:2:1: ")


def test_the_example_of_the_documentation_is_well(site: Site) -> None:
    page = (Path(__file__).parents[2] / "docs" / "catalogue.md").read_text(encoding="utf-8")
    example = page.partition("```yaml\n")[2].partition("```")[0]
    card = of(site(gpus=example)).gpus.find("h100-sxm5-80gb")
    assert (card.limits["bf16_tensor"], card.limits["memory_bandwidth_gb_per_s"]) == (650, 2900)
    assert card.provenance.source("limits.bf16_tensor") == "acceptance test of our first rack"


JUNK = (
    None,
    0,
    -1,
    3.5,
    True,
    "",
    "x",
    "580",
    [],
    {},
    [None],
    ["a"],
    {"a": 1},
    {"default": 1},
    "2026-99",
    "550.12.9.1",
)


def spoiled(value: Any, dice: random.Random) -> Any:
    """A copy of ``value`` with one thing in it replaced, or left out."""
    if not value or not isinstance(value, (dict, list)) or dice.random() < 0.25:
        return dice.choice(JUNK)
    copy = value.copy()
    key = dice.choice(list(value) if isinstance(value, dict) else range(len(value)))
    if dice.random() < 0.2:
        del copy[key]
    else:
        copy[key] = spoiled(value[key], dice)
    return copy


@pytest.mark.parametrize("seed", range(60))
def test_a_spoiled_file_is_taken_or_refused_in_words(site: Site, seed: int) -> None:
    dice = random.Random(seed)
    file = dice.choice(data_names())
    section = dice.choice([name for name in data(file) if name != "sources"])
    text = yaml.safe_dump({section: [spoiled(dice.choice(data(file)[section]), dice)]})
    folder = site(**{file: text})
    with contextlib.suppress(InputError):
        catalogue = of(folder)
        assert catalogue.gpus.all
        assert catalogue.drivers.all
        assert catalogue.cuda.all
        assert catalogue.systems.releases


def test_a_card_of_no_known_floor_is_not_called_supported(site: Site) -> None:
    card = of(site(gpus=OWN_CARD)).gpus.find("prototype")
    assert card.support(driver_version("580.65.06")) == "unknown"
    assert card.support(driver_version("515.105.01")) == "too_old"


OWN_IMAGE = """
sources: {registry: our registry}
images:
  - id: registry.lab.example:5000/ml/train:2026-11
    origin: given
    torch: "2.7.0"
    variant: cu128
    cuda: "12.8"
    require_cuda: cuda>=12.8
    source: registry
    verified: true
  - id: pytorch/pytorch:2.15.0-cuda13.2-cudnn9
    source: pulled here
    torch: "2.15.0"
    cuda: "13.2"
    verified: true
    note: Seen in our registry.
mirrors:
  - {id: registry.lab.example:5000/hub/pytorch, of: pytorch/pytorch, source: registry, verified: true}
"""


def test_a_site_adds_images_of_its_own(site: Site) -> None:
    images = of(site(images=OWN_IMAGE)).images
    own = images.find("registry.lab.example:5000/ml/train:2026-11")
    assert (own.origin, own.torch, own.require_cuda, own.verified) == ("given", "2.7.0", "cuda>=12.8", True)
    assert own.arch_list == images.find("pytorch/pytorch:2.7.0-cuda12.8-cudnn9-devel").arch_list
    assert own.provenance.source("torch") == "our registry"
    with pytest.raises(InputError, match="catalogue does not have the tag 2026-12"):
        images.find("registry.lab.example:5000/ml/train:2026-12")


def test_a_site_that_mirrors_docker_hub_says_so(site: Site) -> None:
    images = of(site(images=OWN_IMAGE)).images
    mirrored = images.find("registry.lab.example:5000/hub/pytorch:2.7.0-cuda12.8-cudnn9-runtime")
    assert (mirrored.origin, mirrored.torch) == ("catalogue", "2.7.0")
    wrong = images.look_up("registry.lab.example:5000/hub/pytorch:2.7.0-cuda12.8-cudnn8-runtime")
    assert isinstance(wrong, NoSuchTag)
    assert wrong.proposal == "registry.lab.example:5000/hub/pytorch:2.7.0-cuda12.8-cudnn9-runtime"


def test_a_build_that_a_site_measured_is_that_of_its_images(site: Site) -> None:
    folder = site(
        torch='builds:\n  - {id: 2.9-cu128, ptx: "12.0", source: get_arch_list here, verified: true, note: Ours.}\n'
    )
    catalogue = of(folder)
    assert catalogue.images.find("pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime").ptx == "12.0"
    assert load().images.find("pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime").ptx is None
