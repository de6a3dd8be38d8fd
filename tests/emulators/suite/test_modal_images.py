"""Images, local files and secrets of the emulator, driven by the real SDK.

Builds run for real, but nothing here needs a package registry: what is installed is a wheel that
the test makes.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import modal
import pytest

from tests.emulators.driving.modal import Driver
from tests.emulators.modal.running import ModalEmulator


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with ModalEmulator() as running:
        yield running


@pytest.fixture
def driver(emulator: ModalEmulator, request: pytest.FixtureRequest) -> Iterator[Driver]:
    with Driver(emulator, request.node.name) as driver:
        yield driver
    emulator.do("clear_faults")


def output(driver: Driver, image: modal.Image, *command: str) -> str:
    driver.image = image
    sandbox = driver.sandbox(*command)
    said = sandbox.stdout.read() + sandbox.stderr.read()
    sandbox.wait()
    return said


def wheel(directory: Path) -> Path:
    """A package of one module that says where it was installed."""
    files = {
        "tinypack.py": b"answer = 42\n",
        "tinypack-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tinypack\nVersion: 1.0\n",
        "tinypack-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\n"
        b"Root-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items())
    files["tinypack-1.0.dist-info/RECORD"] = (record + "tinypack-1.0.dist-info/RECORD,,\n").encode()
    path = directory / "tinypack-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def builds(driver: Driver) -> int:
    return len(driver.emulator.state()["images"])


@pytest.mark.parametrize("method", ["pip_install", "uv_pip_install"])
def test_a_package_is_installed_and_belongs_to_its_image_alone(
    driver: Driver, tmp_path: Path, method: str
) -> None:
    found = wheel(tmp_path)
    base = modal.Image.debian_slim().add_local_file(found, f"/wheels/{found.name}", copy=True)
    image = getattr(base, method)(f"/wheels/{found.name}")
    script = "import tinypack, sys; print(tinypack.answer, tinypack.__file__, sys.prefix)"
    said = output(driver, image, "python", "-c", script).split()
    assert said[0] == "42"
    assert said[1].startswith("/usr/local/lib/")
    assert said[2] == "/usr/local"
    assert "No module" in output(driver, base, "python", "-c", script)


def test_layers_run_in_order_and_leave_their_files(driver: Driver) -> None:
    image = (
        modal.Image.debian_slim()
        .apt_install("git", "curl")
        .run_commands("echo one > /opt/file", "echo two >> /opt/file && ln -s /opt/file /srv/link")
        .env({"GREETING": "a b $HOME"})
        .dockerfile_commands('ENV PATH=/opt/bin:$PATH SAID="$GREETING!"')
        .workdir("/srv")
        .run_commands("pwd > where; mkdir -p /opt/bin; printf '#!/bin/sh\\necho tool' > /opt/bin/t")
        .run_commands("chmod +x /opt/bin/t")
    )
    said = output(driver, image, "sh", "-c", "pwd; cat link where; echo $SAID; t")
    assert said == "/srv\none\ntwo\n/srv\na b $HOME!\ntool\n"


def test_a_failing_command_fails_the_build_with_its_words(driver: Driver) -> None:
    image = modal.Image.debian_slim().run_commands("echo before", "echo why >&2; exit 7")
    with pytest.raises(modal.exception.ImageBuildError, match="non-zero code: 7"):
        image.build(driver.app)
    failed = [one for one in driver.emulator.state()["images"] if one["state"] == "failed"]
    assert "why" in failed[-1]["problem"]
    assert driver.emulator.live() == []


def test_the_same_layers_are_built_once(driver: Driver) -> None:
    def made() -> modal.Image:
        return modal.Image.debian_slim().run_commands("date +%N > /stamp")

    first = output(driver, made(), "cat", "/stamp")
    before = builds(driver)
    assert output(driver, made(), "cat", "/stamp") == first
    assert builds(driver) == before
    other = modal.Image.debian_slim().run_commands("date +%N > /stamp", force_build=True)
    assert output(driver, other, "cat", "/stamp") != first


def test_the_build_log_is_streamed(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    image = modal.Image.debian_slim().run_commands("echo said-in-the-build")
    with modal.enable_output():
        image.build(driver.app)
    assert "said-in-the-build" in capsys.readouterr().out


def test_an_entrypoint_is_put_before_the_command_until_it_is_emptied(driver: Driver) -> None:
    image = modal.Image.debian_slim().entrypoint(["echo", "entry"])
    assert output(driver, image, "sh", "-c", "true") == "entry sh -c true\n"
    assert output(driver, image.entrypoint([]), "echo", "plain") == "plain\n"


def test_a_registry_image_and_its_dockerfile_are_taken_as_they_are(
    driver: Driver, tmp_path: Path
) -> None:
    image = modal.Image.from_registry("ubuntu:24.04", add_python="3.11")
    assert output(driver, image, "python", "-c", "print('works')") == "works\n"
    (tmp_path / "data.txt").write_text("from the context\n")
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(
        "FROM python:3.11\nARG WHO=nobody\nCOPY data.txt /in/\nENV A=1\n"
        'RUN echo $A \\\n  two >> /in/data.txt\nCMD ["cat", "/in/data.txt"]\n'
    )
    built = modal.Image.from_dockerfile(dockerfile, context_dir=tmp_path)
    assert output(driver, built) == "from the context\n1 two\n"


def test_local_files_are_added_at_their_place_with_their_mode(
    driver: Driver, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep/a.txt").write_text("a")
    (tree / "skip.log").write_text("x")
    tool = tree / "tool.sh"
    tool.write_text("#!/bin/sh\necho ran\n")
    tool.chmod(0o755)
    image = (
        modal.Image.debian_slim()
        .add_local_dir(tree, "/root/app", ignore=["*.log"])
        .add_local_file(tool, "/usr/local/bin/tool")
    )
    command = "cd /root/app; find . -type f | sort; echo b > deep/a.txt; ./tool.sh; tool"
    assert output(driver, image, "sh", "-c", command) == "./deep/a.txt\n./tool.sh\nran\nran\n"
    assert (tree / "deep/a.txt").read_text() == "a"
    assert output(driver, image, "cat", "/root/app/deep/a.txt") == "a"


def test_the_same_files_are_sent_once(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "unique").write_text("only in this test")

    def image() -> modal.Image:
        return modal.Image.debian_slim().add_local_file(tmp_path / "unique", "/unique")

    output(driver, image(), "cat", "/unique")
    driver.emulator.do("clear_log")
    assert output(driver, image(), "cat", "/unique") == "only in this test"
    puts = [one for one in driver.emulator.log() if one["rpc"] == "MountPutFile"]
    assert len(puts) == 0


def test_a_snapshot_is_an_image_of_what_the_sandbox_wrote(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    sandbox.exec("sh", "-c", "echo kept > /opt/kept; echo $$ > /tmp/pid").wait()
    image = sandbox.snapshot_filesystem()
    sandbox.terminate(wait=True)
    assert output(driver, image, "cat", "/opt/kept") == "kept\n"


def test_a_secret_is_named_and_its_keys_are_checked(driver: Driver) -> None:
    modal.Secret.objects.create("named", {"KEY": "hush-1"}, client=driver.client)
    with pytest.raises(modal.exception.AlreadyExistsError):
        modal.Secret.objects.create("named", {"KEY": "v2"}, client=driver.client)
    secret = modal.Secret.from_name("named", required_keys=["KEY"], client=driver.client)
    own = modal.Secret.from_dict({"OTHER": "o"})
    for options in ({}, {"gpu": "T4"}):
        sandbox = driver.sandbox("sh", "-c", "echo $KEY $OTHER", secrets=[secret, own], **options)
        assert sandbox.stdout.read() == "hush-1 o\n"
    with pytest.raises(modal.exception.InvalidError, match="MISSING"):
        modal.Secret.from_name("named", required_keys=["MISSING"], client=driver.client).hydrate()
    with pytest.raises(modal.exception.NotFoundError):
        modal.Secret.from_name("nobody", client=driver.client).hydrate()
    assert "hush-1" not in str(driver.emulator.state())


def test_an_image_is_found_by_its_id(driver: Driver) -> None:
    image = modal.Image.debian_slim().run_commands("echo id > /id").build(driver.app)
    again = modal.Image.from_id(image.object_id, client=driver.client)
    assert output(driver, again, "cat", "/id") == "id\n"
    with pytest.raises(modal.exception.NotFoundError):
        output(driver, modal.Image.from_id("im-" + "0" * 22, client=driver.client), "true")
