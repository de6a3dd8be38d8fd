"""The wheel in somebody else's project, whose own packages are called `specs` and `controllers`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.fleet import EXAMPLES, ROOT, Fleet
from tests.docs.screens import blocks

PAGE = ROOT / "docs" / "how-to" / "use-an-interpreter.md"
COMPILED = shutil.ignore_patterns("__pycache__")
UV = Path(sys.executable).with_name("uv")


def run(*words: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(it) for it in words], cwd=cwd, env=env, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: what a build leaves behind would be part of the next one."""
    source = tmp_path_factory.mktemp("source")
    for name in ("fleetctl", "specs", "controllers", "requirements"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=COMPILED)
    for name in ("pyproject.toml", "README.md", "LICENSE", "Makefile"):
        shutil.copy(ROOT / name, source)
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    build = ("wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", place)
    run(sys.executable, "-m", "pip", *build, source, cwd=place)
    (found,) = place.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def project(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with packages of its own, and an environment with the wheel and what it needs."""
    place = tmp_path_factory.mktemp("project")
    for name in ("specs", "controllers"):
        (place / name).mkdir()
        (place / name / "__init__.py").write_text("OURS = True\n")
    run(UV, "venv", "-q", "--python", sys.executable, place / "env", cwd=place)
    install = (UV, "pip", "install", "-q", "--python", place / "env/bin/python", "--no-build")
    run(*install, "--require-hashes", "-r", ROOT / "requirements/core.txt", cwd=place)
    run(*install, "--no-deps", wheel, cwd=place)
    yield place


def test_it_has_one_top_level_package_with_all_that_is_no_python(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {it.partition("/")[0] for it in names if ".dist-info/" not in it} == {"fleetctl"}
    data = {Path(it).suffix for it in names if it.startswith("fleetctl/")} - {".py"}
    assert {".sql", ".json", ".sh", ".yaml", ".css", ".js", ".bash"} <= data
    assert "fleetctl/specs/schemas/batchjob.json" in names
    assert "fleetctl/specs/examples/hello.yaml" in names


def test_the_projects_own_packages_are_its_own(project: Path) -> None:
    asked = "import specs, controllers, fleetctl.specs; print(specs.OURS and controllers.OURS)"
    assert run("env/bin/python", "-c", asked, cwd=project).strip() == "True"


def test_the_python_example_of_the_docs_runs_there(project: Path, tmp_path: Path) -> None:
    example, *_ = blocks(PAGE.read_text("utf-8"), "python")  # others show parts
    (project / "example.py").write_text(example)
    env = {**os.environ, "FLEETCTL_HOME": str(tmp_path / "home")}
    assert run("env/bin/python", "example.py", cwd=project, env=env).strip() == "3"


def test_the_demo_installs_what_a_user_needs_and_no_more(project: Path, source: Path) -> None:
    run("make", "-s", ".demo/ready", f"UV={UV}", f"PYTHON={sys.executable}", cwd=source)
    assert run(".demo/bin/fleetctl", "version", cwd=source).startswith("fleetctl ")
    listed = run(
        UV, "pip", "list", "-q", "--python", ".demo/bin/python", "--format=json", cwd=source
    )
    pins = (ROOT / "requirements/core.txt").read_text("utf-8")
    core = set(re.findall(r"^([a-z0-9-]+)==", pins, re.MULTILINE))
    assert {it["name"] for it in json.loads(listed)} == {*core, "fleetctl", "setuptools", "uv"}


def test_one_command_needs_no_installation(project: Path, wheel: Path, tmp_path: Path) -> None:
    """`uvx`, from the wheel; that of `project` has put what it requires into uv's cache."""
    uvx = (UV, "tool", "run", "--offline", "--python", sys.executable, "--from", wheel)
    pins = ("--constraints", ROOT / "requirements/core.txt")
    env = {**os.environ, "FLEETCTL_HOME": str(tmp_path / "home"), "UV_TOOL_DIR": str(tmp_path)}
    try:
        ran = run(*uvx, *pins, "fleetctl", "run", "--", "echo", "hello", cwd=tmp_path, env=env)
        assert ran == "hello\n"
        code = "import fleetctl; print(fleetctl.__file__)"
        assert str(ROOT) not in run(*uvx, *pins, "python", "-c", code, cwd=tmp_path, env=env)
    finally:
        run(*uvx, *pins, "fleetctl", "down", cwd=tmp_path, env=env)


def test_a_manifest_is_applied_there(project: Path, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "home", {"PATH": f"{project}/env/bin{os.pathsep}{os.defpath}"})
    try:
        done = fleet.shell(f"cd {project} && fleetctl apply -f {EXAMPLES}/hello.yaml --wait")
        assert done.code == 0, done
        assert "batchjob/hello succeeded: 3 done, 0 failed" in done.out
    finally:
        fleet.close()
