"""What is remembered of a run, and the command that repeats it."""

from __future__ import annotations

from fleet.run.request import RunRequest


def test_the_command_that_repeats_a_run_has_all_that_decides_what_it_does() -> None:
    assert RunRequest("lab.yaml", "provision").command == "fleet provision lab.yaml"
    request = RunRequest(
        "my lab.yaml",
        "site.yaml",
        tags=("a", "b"),
        skip_tags=("c",),
        extra_vars={"image": "pytorch:2.7", "docker_engine_settings": {"userland-proxy": False}},
    )
    assert request.command == (
        "fleet run 'my lab.yaml' site.yaml --tags a,b --skip-tags c -e image=pytorch:2.7 "
        """-e '{"docker_engine_settings": {"userland-proxy": false}}'"""
    )


def test_a_stored_request_comes_back_as_it_was() -> None:
    request = RunRequest("lab.yaml", "provision", limit="gpu01", tags=("a",), extra_vars={"x": [1]}, forks=3)
    assert RunRequest.from_json(request.as_json()) == request
