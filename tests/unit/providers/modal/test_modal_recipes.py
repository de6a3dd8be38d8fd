"""What a template's image is made of on Modal, and how its machine is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fleetctl.common.errors import Refused
from fleetctl.manifest.files.requirements import add_content_digest
from fleetctl.providers.modal.runs.modal_machines import GPUS, ModalMachine, choose_machine
from fleetctl.providers.remote.recipes import Recipe, build_recipe
from fleetctl.specs.blocks.resources import Resources
from fleetctl.specs.blocks.template import Template


def made(image: Any = None, **fields: Any) -> Recipe:
    given = {} if image is None else {"image": image}
    return build_recipe(Template.model_validate({"script": "true", **given, **fields}))


def test_a_template_without_an_image_gets_a_plain_python() -> None:
    assert made() == Recipe(None, "3.12", (), (), (), (), ())


def test_a_registry_image_has_its_own_python_unless_one_is_asked_for() -> None:
    assert (made("ubuntu:24.04").registry, made("ubuntu:24.04").python) == ("ubuntu:24.04", None)
    assert made({"registry": "ubuntu:24.04", "python": "3.11"}).python == "3.11"


def test_everything_that_changes_an_image_changes_its_key_and_nothing_else_does() -> None:
    image = {"python": "3.12", "pip": ["a", "b"], "apt": ["c"], "run": ["d"], "env": {"E": "f"}}
    changes: list[dict[str, Any]] = [
        {"python": "3.11"}, {"pip": ["a"]}, {"apt": []}, {"run": ["d", "d"]}, {"env": {"E": "g"}},
        {"registry": "x"},
    ]  # fmt: skip
    keys = {made(image).key, *(made(image | change).key for change in changes)}
    assert len(keys) == 1 + len(changes)
    assert made(image, env={"X": "y"}, resources={"cpu": 2}).key == made(image).key


def test_a_registry_image_must_have_python_where_the_task_needs_it() -> None:
    image = {"registry": "ubuntu:24.04", "python": "3.11"}
    assert not made(image).must_have_python
    task = Template.model_validate({"python": "1", "image": image})
    assert build_recipe(task).must_have_python
    assert not build_recipe(Template(python="1")).must_have_python


def test_a_key_names_a_file() -> None:
    assert made({"registry": "ghcr.io/a/b@sha256:00"}).key.isalnum()


def test_what_is_told_of_an_image_has_no_values_of_its_environment() -> None:
    told = made({"pip": ["numpy"], "apt": ["git"], "run": ["x"], "env": {"TOKEN": "hush"}}).told
    assert told == "python 3.12, apt git, pip numpy, 1 run command"


def test_the_plain_image_gets_git_when_the_source_is_cloned() -> None:
    source = {"git": {"url": "https://example.org/a.git"}}
    assert made(source=source).apt == ("git", "ca-certificates")
    assert made({"apt": ["git"]}, source=source).apt == ("git", "ca-certificates")
    assert made("ubuntu:24.04", source=source).apt == ()


@pytest.mark.parametrize("entry", ["-r requirements.txt", "--find-links=x", "-e ."])
def test_an_option_is_no_package(entry: str) -> None:
    with pytest.raises(Refused, match="is an option"):
        made({"pip": [entry]})


@pytest.mark.parametrize("entry", ["./dist/a.whl", "../a", "~/a"])
def test_a_path_that_begins_nowhere_certain_is_refused(entry: str) -> None:
    with pytest.raises(Refused, match="a path that does not begin at the root") as caught:
        made({"pip": [entry]})
    assert "from the root" in caught.value.hint


@pytest.mark.parametrize("form", ["{}", "file://{}", "mine @ file://{}", "{}[extra]"])
def test_a_package_of_this_machine_is_uploaded(form: str, tmp_path: Path) -> None:
    wheel = tmp_path / "mine-1.0-py3-none-any.whl"
    wheel.write_bytes(b"one")
    found = made({"pip": [form.format(wheel), "numpy"]})
    (package,) = found.packages
    assert (package.path, found.pip) == (str(wheel), ("numpy",))
    assert package.place.endswith("/mine-1.0-py3-none-any.whl")
    assert package.wanted == package.place + ("[extra]" if "extra" in form else "")


def test_the_content_of_a_local_package_is_part_of_the_key(tmp_path: Path) -> None:
    (tmp_path / "mine" / "pkg").mkdir(parents=True)
    (tmp_path / "mine" / "pkg" / "a.py").write_text("1")
    before = made({"pip": [str(tmp_path / "mine")]}).key
    (tmp_path / "mine" / "pkg" / "__pycache__").mkdir()
    (tmp_path / "mine" / "pkg" / "__pycache__" / "a.pyc").write_text("x")
    assert made({"pip": [str(tmp_path / "mine")]}).key == before
    (tmp_path / "mine" / "pkg" / "a.py").write_text("2")
    assert made({"pip": [str(tmp_path / "mine")]}).key != before


def test_a_package_is_installed_as_it_was_applied_or_not_at_all(tmp_path: Path) -> None:
    wheel = tmp_path / "mine-1.0-py3-none-any.whl"
    wheel.write_bytes(b"one")
    (entry,) = [add_content_digest(f"{wheel}[extra]", [])]
    (package,) = made({"pip": [entry]}).packages
    assert package.wanted == package.place + "[extra]"
    wheel.write_bytes(b"two")
    with pytest.raises(Refused, match="another file than the one that was applied"):
        made({"pip": [entry]})


def test_a_package_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is not there"):
        made({"pip": [str(tmp_path / "nope.whl")]})


def resources(**fields: Any) -> Resources:
    return Resources.model_validate(fields)


def test_without_resources_everything_is_left_to_modal() -> None:
    assert choose_machine(Resources()) == ModalMachine(None, None, None)


def test_cores_and_memory_are_request_and_limit_at_once() -> None:
    found = choose_machine(resources(cpu=2, memory="4Gi"))
    assert (found.cpu, found.memory) == ((2, 2), (4096, 4096))
    assert choose_machine(resources(cpu="50m", memory=1)).cpu == (0.125, 0.125)
    assert choose_machine(resources(memory="1.5Mi")).memory == (2, 2)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("A100:4", "A100:4"),
        ("a100-80gb", "A100-80GB:1"),
        ("h100!:8", "H100!:8"),
        ("B200+", "B200+:1"),
        ("rtx-pro-6000:2", "RTX-PRO-6000:2"),
        ("any:2", "T4:2"),
        ("A10:4", "A10:4"),
    ],
)
def test_gpus_are_spelled_as_the_sdk_does(wanted: str, said: str) -> None:
    assert choose_machine(resources(gpu=wanted)).gpu == said


def test_a_gpu_that_modal_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(Refused, match="`V100`, which Modal does not have") as caught:
        choose_machine(resources(gpu="V100:8"))
    assert all(name in caught.value.hint for name in GPUS)
    with pytest.raises(Refused) as caught:
        choose_machine(resources(gpu="A100-80G"))
    assert caught.value.hint.startswith("it has T4, L4, ")


@pytest.mark.parametrize(("wanted", "most"), [("A10:5", "A10:4"), ("H100:9", "H100:8")])
def test_more_gpus_than_a_sandbox_can_have_are_refused(wanted: str, most: str) -> None:
    with pytest.raises(Refused, match="at most") as caught:
        choose_machine(resources(gpu=wanted))
    assert most in caught.value.hint


def test_a_disk_that_every_sandbox_has_is_granted_and_a_larger_one_refused() -> None:
    assert choose_machine(resources(disk="50Gi")) == ModalMachine(None, None, None)
    with pytest.raises(Refused, match="512 GiB"):
        choose_machine(resources(disk="600Gi"))


@pytest.mark.parametrize("text", ["H100!!", "!H100", "+", "A100!x"])
def test_marks_of_a_gpu_stand_at_its_end_alone(text: str) -> None:
    with pytest.raises(ValidationError):
        resources(gpu=text)


def test_a_snapshot_of_daytona_is_no_image_that_is_built() -> None:
    with pytest.raises(Refused, match="`daytona-large`, and only provider `daytona`"):
        made({"snapshot": "daytona-large"})


def test_a_snapshot_stands_alone() -> None:
    with pytest.raises(ValidationError, match="started as it is, so `pip` cannot be given"):
        made({"snapshot": "daytona-large", "pip": ["numpy"]})
