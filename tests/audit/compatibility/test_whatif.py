"""What somebody supposes: how it is said, and what then is another."""

from __future__ import annotations

import pytest

from fleet.audit.compatibility.subject import Subject, subject_of
from fleet.audit.compatibility.verdict import judge
from fleet.audit.compatibility.whatif import Change, changed
from fleet.catalogue.catalogue import load
from fleet.catalogue.versions import driver_version
from fleet.core.errors import InputError
from tests.facts import healthy_gpu_facts

CU128 = "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime"


def test_it_is_said_in_any_number_of_pieces() -> None:
    said = Change.parse([f"driver=580.159.04, image={CU128}", "toolkit=1.19.1"])
    assert dict(said.items()) == {"driver": "580.159.04", "image": CU128, "toolkit": "1.19.1"}
    assert dict(Change.parse([]).items()) == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("drivers=580.159.04", "not 'drivers'; did you mean driver?"),
        ("driver", "'driver' is not NAME=VALUE"),
        ("driver=", "'driver=' is not NAME=VALUE"),
        ("driver=580", "'580' is not a driver version; did you mean 580."),
        ("driver=new", "'new' is not a driver version, such as 580.159.03"),
        ("toolkit=new", "'new' is not a version of the container toolkit"),
        ("docker=latest", "'latest' is not a version of Docker"),
        ("modules=closed", "'closed' is no flavour of the kernel modules"),
        ("image=Not An Image", "is not the name of an image"),
        ("driver=580.159.04,driver=570.172.08", "--what-if driver is said twice"),
    ],
)
def test_bad_words_are_bad_input(words: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Change.parse([words])
    assert message in str(caught.value)


def test_a_driver_takes_all_that_goes_with_it_along() -> None:
    facts = healthy_gpu_facts({"driver.fabric_manager.version": "570.172.08"})
    before = subject_of(facts)
    assert "audit.fabric_manager.version" in {one.id for one in judge(before, None).findings}
    after, _ = changed(before, None, Change(driver="580.159.04"))
    new = driver_version("580.159.04")
    assert (after.driver, after.library, after.fabric_manager, after.cdi) == (new, new, new, (new,))
    assert {one.id for one in judge(after, None).findings} & {
        "audit.driver.split",
        "audit.fabric_manager.version",
    } == set()


def test_the_kernel_modules_follow_what_the_gpus_can_use() -> None:
    host = Subject.from_question(gpu="GTX 1080 Ti", driver="none")
    assert changed(host, None, Change(driver="580.159.04"))[0].modules == "proprietary"
    host = Subject.from_question(gpu="RTX 5090", driver="none")
    assert changed(host, None, Change(driver="580.159.04"))[0].modules == "open"


def test_an_image_that_cannot_exist_may_be_supposed() -> None:
    wrong = CU128.replace("cudnn9", "cudnn8")
    _, image = changed(Subject(), None, Change(image=wrong))
    assert image == load().images.look_up(wrong)
