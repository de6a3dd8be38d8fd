"""Fields that need Python in the sandbox, with images of which it is known that they have none."""

from __future__ import annotations

import pytest

from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.manifest.checks.sandboxes import has_no_python
from fleetctl.specs.blocks.template import Image

OUTPUTS = "outputs: [out/**]"
METRICS = "metrics: {from: stdout, regex: '(?P<name>.*)=(?P<value>.*)'}"


def load(*lines: str) -> None:
    text = "\n".join(["kind: BatchJob", "name: x", "placement: daytona", *lines, ""])
    load_manifests([Document("job.yaml", text, "")])


def problem(*lines: str) -> str:
    with pytest.raises(ManifestErrors) as caught:
        load(*lines)
    (found,) = caught.value.problems
    return f"{found} | {found.hint}"


def test_outputs_in_an_image_without_python_are_refused_with_the_ways_out() -> None:
    assert problem("script: work", "image: alpine:3.20", OUTPUTS) == (
        "job.yaml:6:1: outputs needs Python in the sandbox, and the image `alpine:3.20` has none"
        " | name one that has it, such as `python:3.12-slim`, or add `apt: [python3]`, or write the"
        " files to a volume"
    )


@pytest.mark.parametrize(
    ("field", "lines"),
    [
        (
            "metrics",
            ["script: work", "metrics: {from: stdout, regex: '(?P<name>.*)=(?P<value>.*)'}"],
        ),
        ("python", ["python: pass"]),
        ("services", ["script: work", "services: [{name: a, command: [b]}]"]),
    ],
)
def test_other_fields_that_need_python_are_refused(field: str, lines: list[str]) -> None:
    told = problem(*lines, "image: docker.io/library/ubuntu@sha256:" + "0" * 64)
    assert f" {field} needs Python in the sandbox" in told


@pytest.mark.parametrize(
    "image",
    [
        "image: python:3.12-slim",
        "image: ghcr.io/team/alpine:1",
        "image: {registry: alpine, python: '3.12'}",
        "image: {registry: debian, apt: [python3]}",
        "image: {registry: alpine, run: [apk add python3]}",
    ],
)
def test_an_image_that_may_have_python_is_not_refused(image: str) -> None:
    load("script: work", image, OUTPUTS)


def test_a_program_alone_needs_no_python() -> None:
    load("script: work", "image: busybox")


@pytest.mark.parametrize("name", ["alpine", "library/busybox:1", "index.docker.io/library/bash"])
def test_official_images_are_known_by_all_their_names(name: str) -> None:
    assert has_no_python(Image(registry=name))
