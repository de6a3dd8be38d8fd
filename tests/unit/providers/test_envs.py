"""Images on this machine: Python environments built by uv, and what is refused with a hint.

No registry is asked: the package is a wheel made here.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.finding import Finding
from fleetctl.providers.local import local_preflight, supervisor
from fleetctl.providers.local.assets import envs, pythons
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.specs.blocks.template import Image, Template
from tests.contracts.local_worlds import LocalWorld
from tests.contracts.provider_worlds import World, command, python, story

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def wheel(directory: Path) -> str:
    """A wheel of one module, `fleetctl_greeting`, with a script."""
    path = directory / "fleetctl_greeting-1.0-py3-none-any.whl"
    about = "fleetctl_greeting-1.0.dist-info"
    files = {
        "fleetctl_greeting.py": "text = 'hello'\ndef main():\n    print(text)\n",
        "fleetctl_crash.py": "import os\nos._exit(66)\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: fleetctl-greeting\nVersion: 1.0\n",
        f"{about}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
        f"{about}/entry_points.txt": "[console_scripts]\ngreet = fleetctl_greeting:main\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return str(path)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")


def _no_uv() -> str:
    raise Refused("uv is missing")


@pytest.fixture
def shell_of_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"/somebodys/shims:{os.environ['PATH']}")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")


@pytest.mark.usefixtures("offline")
class TestEnvironments:
    def world(self, tmp_path: Path) -> LocalWorld:
        return LocalWorld(tmp_path)

    @story
    async def test_a_task_runs_with_what_its_image_lists_and_nothing_of_fleetctl(
        self, world: World
    ) -> None:
        image = {"python": VERSION, "pip": [wheel(world.directory)]}
        code = (
            "import fleetctl_greeting, importlib.util\n"
            "ours = importlib.util.find_spec('pydantic') is not None\n"
            "SUBMIT(text=fleetctl_greeting.text, ours=ours)"
        )
        seen = await world.run(python(code, image=image))
        assert seen.result == '{"ours":false,"text":"hello"}'

    @story
    async def test_a_library_that_kills_its_process_kills_the_task_alone(
        self, world: World
    ) -> None:
        image = {"pip": [wheel(world.directory)]}
        seen = await world.run(python("import fleetctl_crash\nSUBMIT(1)", image=image))
        assert (seen.ok, seen.reason) == (False, "ExitCode:66")

    @story
    async def test_an_editable_package_is_imported_from_the_source(self, world: World) -> None:
        lib = world.directory / "project" / "lib"
        lib.mkdir(parents=True)
        (lib / "fleetctl_greeting.py").write_text("text = 'edited'\n")
        given = {
            "image": {"pip": [wheel(world.directory)]},
            "source": {"path": str(lib.parent)},
            "env": {"PYTHONPATH": "lib"},
        }
        code = "import fleetctl_greeting as it\nprint(it.text)"
        refs = [
            await world.start(python(code, **given), run="run-0"),
            await world.start(command("python", "-c", code, **given), run="run-1"),
        ]
        for ref in refs:
            assert (await world.ended(ref)).ok
            assert await world.log(ref) == b"edited\n"

    @story
    async def test_programs_of_the_image_come_first_on_the_path(self, world: World) -> None:
        image = {"pip": [wheel(world.directory)]}
        ref = await world.start(command("greet", image=image))
        assert (await world.ended(ref)).ok
        assert await world.log(ref) == b"hello\n"

    @story
    async def test_what_is_installed_is_compiled_where_tasks_cannot_write(
        self, world: World
    ) -> None:
        code = "import fleetctl_greeting, os\nSUBMIT(os.path.exists(fleetctl_greeting.__cached__))"
        seen = await world.run(python(code, image={"pip": [wheel(world.directory)]}))
        assert seen.result == '{"output":true}'

    def test_an_environment_is_built_once_however_many_ask(self, tmp_path: Path) -> None:
        layout = LocalLayout(tmp_path / "home")
        image = Image(pip=(wheel(tmp_path),))

        async def ask() -> list[envs.EnvPython]:
            return await asyncio.gather(*(envs.python_of(layout, image) for _ in range(4)))

        found = asyncio.run(ask())
        assert len({one.python for one in found}) == 1
        built = [path for path in layout.environments.iterdir() if path.is_dir()]
        assert len(built) == 1
        made = built[0].stat().st_ino
        asyncio.run(envs.python_of(layout, image))
        assert built[0].stat().st_ino == made

    def test_an_environment_whose_python_has_gone_is_built_again(self, tmp_path: Path) -> None:
        layout = LocalLayout(tmp_path / "home")
        for image in (None, Image(pip=(wheel(tmp_path),))):
            made = Path(asyncio.run(envs.python_of(layout, image)).python)
            made.unlink()
            made.symlink_to(tmp_path / "gone")
            assert asyncio.run(envs.python_of(layout, image)).python == str(made)
            assert subprocess.run([made, "-c", "print(1)"], capture_output=True).stdout == b"1\n"

    def test_a_build_that_fails_is_refused_with_what_uv_said(self, tmp_path: Path) -> None:
        layout = LocalLayout(tmp_path / "home")
        with pytest.raises(Refused, match="no-such-package-of-fleetctl") as caught:
            asyncio.run(envs.python_of(layout, Image(pip=("no-such-package-of-fleetctl",))))
        assert ".log" in caught.value.hint
        assert [path for path in layout.environments.iterdir() if path.is_dir()] == []

    def test_a_registry_that_is_away_refuses_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("UV_OFFLINE", raising=False)
        monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:1/simple")
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        with pytest.raises(Unavailable, match="/no-such-package") as caught:
            image = Image(pip=("no-such-package-of-fleetctl",))
            asyncio.run(envs.python_of(LocalLayout(tmp_path / "home"), image))
        assert caught.value.reason == "Unreachable"

    def test_an_option_is_no_requirement(self, tmp_path: Path) -> None:
        with pytest.raises(Refused):
            image = Image(pip=("--target=/tmp/fleetctl-test-of-options",))
            asyncio.run(envs.python_of(LocalLayout(tmp_path / "home"), image))
        assert not Path("/tmp/fleetctl-test-of-options").exists()


class TestPlainEnvironments:
    """What a task finds without an image: the same on every machine, whoever starts it where."""

    def world(self, tmp_path: Path) -> LocalWorld:
        return LocalWorld(tmp_path)

    @story
    async def test_a_python_task_has_the_standard_library_alone(self, world: World) -> None:
        code = (
            "import importlib.util, sys\n"
            "found = [one for one in ('pydantic', 'yaml', 'fleetctl', 'pip')\n"
            "         if importlib.util.find_spec(one)]\n"
            "SUBMIT(found=found, version=sys.version.split()[0], packages=sys.path[-1])"
        )
        seen = await world.run(python(code))
        result = json.loads(seen.result)
        assert (result["found"], result["version"]) == ([], platform.python_version())
        assert f"/local/envs/plain-{VERSION}-" in result["packages"]

    @pytest.mark.parametrize(
        ("module", "package"),
        [("sklearn.svm", "scikit-learn"), ("fleetctl_no_such", "fleetctl_no_such")],
    )
    def test_a_module_that_is_not_there_says_how_to_get_it(
        self, tmp_path: Path, module: str, package: str
    ) -> None:
        async def told(_: object, world: World) -> None:
            one = python(f"import {module}")
            other = command("python", "-c", f"import {module}")
            for number, template in enumerate((one, other)):
                name = f"run-{number}"
                seen = await world.run(template, run=name, template_hash=f"hash-{number}")
                top = module.partition(".")[0]
                last = f"ModuleNotFoundError: No module named '{top}'"
                assert seen.message.splitlines()[-1] == last
                assert seen.hint == (
                    f"add `image: {{pip: [{package}]}}`, or `source` where the module is yours"
                )

        story(told)(self, tmp_path)

    @pytest.mark.usefixtures("shell_of_somebody")
    @story
    async def test_a_command_finds_that_python_and_the_programs_of_the_system(
        self, world: World
    ) -> None:
        asks = '-c "import sys; print(sys.prefix)"'  # `${interpreter}` of a search is `python`
        script = f'python3 {asks}; python {asks}; echo "$PATH"; echo "$LANG"'
        ref = await world.start(command("sh", "-c", script))
        assert (await world.ended(ref)).ok
        prefix, of_python, path, lang = (await world.log(ref)).decode().splitlines()
        assert of_python == prefix
        assert f"/local/envs/plain-{VERSION}-" in prefix
        assert path == f"{prefix}/bin:{envs.PROGRAMS}"
        assert lang == "C.UTF-8"

    @story
    async def test_a_path_of_the_manifest_is_taken_as_it_is(self, world: World) -> None:
        ref = await world.start(command("/bin/sh", "-c", "echo $PATH", env={"PATH": "/opt/bin"}))
        assert (await world.ended(ref)).ok
        assert await world.log(ref) == b"/opt/bin\n"

    def test_an_image_with_a_version_alone_needs_no_uv(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (envs, pythons):
            monkeypatch.setattr(module, "find_uv", lambda: pytest.fail("it asks for uv"))
        layout = LocalLayout(tmp_path / "home")
        found = asyncio.run(envs.python_of(layout, Image(python=VERSION)))
        assert found == asyncio.run(envs.python_of(layout, None))

    def test_uv_is_missed_beforehand_only_where_it_would_be_asked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (local_preflight, pythons):
            monkeypatch.setattr(module, "find_uv", _no_uv)

        async def ahead(**image: object) -> list[Finding]:
            template = Template.model_validate({"image": image})
            return [it async for it in local_preflight.find_obstacles(template, tmp_path)]

        assert asyncio.run(ahead(python=VERSION)) == []
        for image, field in (({"python": "3.94"}, "python"), ({"pip": ["x"]}, "pip")):
            (found,) = asyncio.run(ahead(**image))
            assert (found.where, found.what) == (("image", field), "uv is missing")

    def test_a_python_that_was_started_by_a_relative_path_is_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = pythons.own_python().executable
        here = Path.cwd()
        monkeypatch.setattr(sys, "_base_executable", f"{here}/{os.path.relpath(real, here)}")
        assert pythons.own_python().executable == real


class TestPythons:
    def test_our_own_version_is_found(self) -> None:
        assert asyncio.run(pythons.find_python(VERSION)) == pythons.own_python()

    def test_a_candidate_that_does_not_run_is_passed_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shim = tmp_path / f"python{VERSION}"
        shim.write_text("#!/bin/sh\nexit 127\n")
        shim.chmod(0o755)
        own = sys.executable
        real = pythons.own_python()
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr(sys, "executable", str(shim))
        monkeypatch.setattr(pythons, "_list_candidates", lambda _: [str(shim), own])
        assert asyncio.run(pythons.find_python(VERSION)) == real

    @pytest.mark.usefixtures("offline")
    def test_a_version_that_is_not_to_be_had_is_refused(self) -> None:
        with pytest.raises(Refused, match=r"3\.94") as caught:
            asyncio.run(pythons.find_python("3.94"))
        assert "uv python install" in caught.value.hint

    def test_a_version_too_old_for_the_guest_is_refused(self) -> None:
        with pytest.raises(Refused, match=r"3\.9 and later"):
            asyncio.run(pythons.find_python("3.8"))


@pytest.mark.parametrize(
    ("image", "says", "hint"),
    [
        (Image(registry="ghcr.io/a/b"), "ghcr.io/a/b", "pip"),
        (Image(run=("apt-get update",)), "image.run", "start of the task"),
        (
            Image(apt=("sh", "no-such-a", "no-such-b")),
            "no-such-a, no-such-b",
            "apt-get install no-such-a no-such-b",
        ),
        (Image(apt=("--admindir=/tmp",)), "not a package name", "remove it"),
    ],
)
def test_what_this_machine_cannot_give_is_refused_with_a_hint(
    image: Image, says: str, hint: str
) -> None:
    with pytest.raises(Refused, match=says) as caught:
        asyncio.run(pythons.check_image(image))
    assert hint in caught.value.hint


def test_the_supervisor_is_python_3_9() -> None:
    parts = sorted(Path(supervisor.__file__).parent.rglob("*.py"))
    assert len(parts) > 10
    for part in parts:
        ast.parse(part.read_text(), feature_version=(3, 9))
