"""The Dockerfiles that images of Daytona are built from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Refused
from fleetctl.providers.daytona.assets import daytona_images
from fleetctl.providers.remote.recipes import NO_PYTHON, build_recipe
from fleetctl.specs.blocks.template import Template

GUEST = "RUN mkdir -p /.fleetctl"


@pytest.fixture
def lines(tmp_path: Path) -> Any:
    def of(image: dict[str, Any], work: str = "script") -> list[str]:
        template = Template.model_validate({work: "pass", "image": image})
        return (
            daytona_images.build_image(build_recipe(template), tmp_path).dockerfile().splitlines()
        )

    return of


def test_nothing_said_is_a_small_image_with_python_and_the_guest(lines: Any) -> None:
    made = lines({})
    assert made[0] == "FROM python:3.12-slim-bookworm"
    assert made[1] == GUEST
    assert made[-1] == 'ENTRYPOINT ["sleep", "infinity"]'


@pytest.mark.parametrize("pip", [[], ["six"]])
@pytest.mark.parametrize("version", ["3.10", "3.13"])
def test_the_python_that_is_named_is_the_one_of_the_image(
    lines: Any, version: str, pip: list[str]
) -> None:
    made = lines({"python": version, "pip": pip})
    base = made[0].removeprefix("FROM python:").removesuffix("-slim-bookworm")
    assert base.split(".")[:2] == version.split(".")
    assert ("RUN python -m pip install six" in made) == bool(pip)


def test_packages_of_the_distribution_are_installed_before_all_that_may_need_them(
    lines: Any,
) -> None:
    made = lines({"apt": ["git", "tree"], "pip": ["six"], "env": {"A": "b"}, "run": ["true"]})
    [apt] = [line for line in made if "tree" in line]
    assert "apt-get update && apt-get install -y --no-install-recommends git tree" in apt
    order = ["ENV A=b", apt, "RUN python -m pip install six", "RUN true", GUEST]
    assert [line for line in made if line in order] == order


@pytest.mark.parametrize("image", [{}, {"apt": ["tree"]}, {"pip": ["six"]}, {"run": ["id"]}])
def test_an_image_of_a_registry_is_changed_by_root_whoever_its_user_is(
    lines: Any, image: dict[str, Any]
) -> None:
    made = lines({"registry": "jupyter/base-notebook:1", **image})
    assert made[:2] == ["FROM jupyter/base-notebook:1", "USER root"]
    assert [line for line in made if line.startswith("USER")] == ["USER root"]
    assert GUEST in made


def test_an_image_without_python_is_told_by_its_build_where_a_task_needs_one(lines: Any) -> None:
    checks = [line for line in lines({"registry": "a:1"}, "python") if NO_PYTHON in line]
    assert len(checks) == 1
    assert not any(NO_PYTHON in line for line in lines({"registry": "a:1"}, "script"))


def test_python_beside_an_image_of_a_registry_is_refused(lines: Any) -> None:
    with pytest.raises(Refused, match="Daytona adds no Python"):
        lines({"registry": "a:1", "python": "3.12"})
