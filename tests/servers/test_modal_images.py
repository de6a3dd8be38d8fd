"""Images of provider `modal` through the real SDK: layers, logs, failures, sources, and the guest.

No package registry is asked: what is installed is a wheel that the test makes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.guest.ship.assemble import posix_source, remote_source
from fleetctl.providers.modal.assets.modal_images import GUEST_PATH, POSIX_GUEST_PATH, ModalImages
from fleetctl.providers.remote import recipes
from fleetctl.providers.rundir.build_logs import is_building, logs_of
from fleetctl.specs.blocks.template import Image, PipIndex, Template
from tests.emulators.modal.running import ModalEmulator
from tests.servers.modal_assets import Assets, Door, eventually, told
from tests.unit.providers.test_envs import wheel
from tests.unit.providers.test_pip_index import PASSWORD, SECRET, Index


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with ModalEmulator() as running:
        yield running


def log_of(assets: Assets, uid: str = "u") -> str:
    return "".join(one.read_text() for one in logs_of(assets.home, uid))


def project(assets: Assets) -> Path:
    """A directory with things that stay out at several depths."""
    top = assets.home.parent / "project"
    for name in ("main.py", "pkg/mod.py", "pkg/deep/data.bin", ".git/config", "notes.log"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(f"the text of {name}")
    (top / ".gitignore").write_text("*.bin\n")
    (top / "pkg" / ".gitignore").write_text("*.tmp\n")
    (top / "pkg" / "x.tmp").write_text("x")
    (assets.home.parent / "secret").write_text("hush")
    (top / "escape").symlink_to("../secret")
    (top / "alias.py").symlink_to("main.py")
    return top


@told
async def test_steps_run_in_order_and_see_the_environment_of_the_image(assets: Assets) -> None:
    image = await assets.ready(
        image={
            "env": {"WHO": "a b"},
            "run": ['echo "one $WHO" > /opt/steps', "echo two >> /opt/steps"],
        }
    )
    reply = await assets.output(image, "sh", "-c", 'cat /opt/steps; echo "$WHO"')
    assert reply == "one a b\ntwo\na b\n"


@told
async def test_a_local_wheel_is_uploaded_and_installed(assets: Assets) -> None:
    path = wheel(assets.home.parent)
    image = await assets.ready(image={"pip": [path]})
    reply = await assets.output(
        image, "python", "-c", "import fleetctl_greeting as g; print(g.text)"
    )
    assert reply == "hello\n"


@told
async def test_both_guests_are_in_every_image(assets: Assets) -> None:
    for given in ({}, {"image": "ubuntu:24.04"}, {"image": {"run": ["true"]}}):
        image = await assets.ready(**given)
        assert await assets.output(image, "cat", GUEST_PATH) == remote_source()
        assert await assets.output(image, "cat", POSIX_GUEST_PATH) == posix_source()


@told
async def test_an_image_without_the_python_that_its_task_needs_is_refused(assets: Assets) -> None:
    image = {"registry": "alpine:3.20", "env": {"PATH": "/nowhere"}}
    await assets.ready(image=image)
    with pytest.raises(Refused, match="the image has no python3"):
        await assets.ready(image=image, python="SUBMIT(1)", script=None)
    await assets.ready(image="alpine:3.20", python="SUBMIT(1)", script=None)


@told
async def test_a_registry_image_gets_the_python_that_is_asked_for(assets: Assets) -> None:
    image = await assets.ready(image={"registry": "ubuntu:24.04", "python": "3.11"})
    assert await assets.output(image, "python", "-c", "print('works')") == "works\n"


@told
async def test_many_starts_at_once_share_one_build_and_later_ones_ask_nothing(
    assets: Assets,
) -> None:
    before = assets.rpcs("ImageJoinStreaming")
    image = {"run": ["echo shared > /opt/shared"]}
    made = await asyncio.gather(*(assets.ready(image=image) for _ in range(20)))
    assert len({id(one) for one in made}) == 1
    # The plain image below may have been built by a test before this one.
    assert assets.rpcs("ImageJoinStreaming") - before in (1, 2, 3)
    asked = assets.emulator.rpcs()
    await assets.ready(image=image)
    assert assets.emulator.rpcs() == asked
    # Another object with the same image needs neither a build nor a look at each layer.
    layers = assets.rpcs("ImageGetOrCreate")
    await assets.ready("other", image=image)
    assert assets.rpcs("ImageGetOrCreate") == layers


@told
async def test_sandboxes_start_without_asking_for_images_or_files_again(assets: Assets) -> None:
    image = await assets.ready(image={"run": ["true"]}, source={"path": str(project(assets))})
    await assets.output(image, "true")
    before = assets.emulator.rpcs()
    await assets.output(image, "true")
    after = assets.emulator.rpcs()
    assert {name: after[name] - before.get(name, 0) for name in after if "Image" in name} == {
        name: 0 for name in after if "Image" in name
    }
    assert after["MountGetOrCreate"] == before["MountGetOrCreate"]


@told
async def test_the_log_of_a_build_can_be_read_while_it_goes_on(assets: Assets) -> None:
    door = Door()
    steps = ["echo before the door", door.command + "; echo behind the door"]
    building = asyncio.create_task(assets.ready(image={"run": steps}))
    await door.knocked()
    await eventually(lambda: "before the door\n" in log_of(assets))
    assert "\nbehind the door" not in log_of(assets)
    assert [is_building(log) for log in logs_of(assets.home, "u")] == [True]
    door.open()
    await building
    assert "\nbehind the door" in log_of(assets)
    assert [is_building(log) for log in logs_of(assets.home, "u")] == [False]


@told
async def test_a_long_build_makes_room_for_other_starts_and_goes_on(assets: Assets) -> None:
    door = Door()
    image = {"run": [door.command, "echo long > /opt/long"]}
    patience_s, recipes.PATIENCE_S = recipes.PATIENCE_S, 0.2
    try:
        with pytest.raises(Unavailable) as caught:
            await assets.ready(image=image)
    finally:
        recipes.PATIENCE_S = patience_s
    assert caught.value.reason == "Building"
    assert "logs --build" in caught.value.hint
    await door.knocked()
    door.open()
    assert await assets.output(await assets.ready(image=image), "cat", "/opt/long") == "long\n"


@told
async def test_a_build_that_fails_is_refused_with_the_end_of_its_log(assets: Assets) -> None:
    image = {"run": ["echo fine", "echo gcc: no such header >&2; exit 7"]}
    with pytest.raises(Refused, match="gcc: no such header") as caught:
        await assets.ready(image=image)
    (log,) = logs_of(assets.home, "u")
    assert caught.value.hint == f"the whole log is `{log.resolve()}`"
    assert "fine" in log.read_text()
    assert "non-zero code: 7" in str(caught.value)
    # Nothing is remembered of it: applying again builds again.
    joined = assets.rpcs("ImageGetOrCreate")
    with pytest.raises(Refused, match="gcc: no such header"):
        await assets.ready(image=image)
    assert assets.rpcs("ImageGetOrCreate") > joined


@told
async def test_the_log_of_a_build_stays_when_the_next_controller_finds_it_built(
    assets: Assets,
) -> None:
    image = {"run": ["echo built once"]}
    await assets.ready(image=image)
    first = log_of(assets)
    assert "built once" in first
    assets.images = ModalImages(assets.home / "modal")
    await assets.ready("v", image=image)
    assert log_of(assets) == log_of(assets, "v") == first


@told
async def test_an_image_that_was_built_elsewhere_says_so(assets: Assets) -> None:
    image = {"run": ["echo built elsewhere"]}
    await assets.ready(image=image)
    other = Assets(assets.emulator, assets.home.parent / "another-home")
    other.client, other.app = assets.client, assets.app
    await other.ready(image=image)
    await other.images.close()
    assert log_of(other) == "[fleetctl: python 3.12, 1 run command: built before, nothing to do]\n"


@told
async def test_a_world_that_is_away_is_no_fault_of_the_image(assets: Assets) -> None:
    assets.emulator.do("fault", rpc="ImageGetOrCreate", status="UNAVAILABLE", count=None)
    with pytest.raises(Unavailable, match="image cannot be built"):
        await assets.ready(image={"run": ["true", "true"]})
    assets.emulator.do("clear_faults")
    await assets.ready(image={"run": ["true", "true"]})


@told
async def test_what_the_sdk_refuses_is_refused(assets: Assets) -> None:
    with pytest.raises(Refused, match=r"2\.7"):
        await assets.ready(image={"python": "2.7"})


@told
async def test_a_directory_is_in_the_sandbox_without_what_its_ignore_files_name(
    assets: Assets,
) -> None:
    source = {"path": str(project(assets)), "exclude": ["*.log"]}
    image = await assets.ready(source=source)
    reply = await assets.output(image, "sh", "-c", "cd /root/project; find . ! -type d | sort")
    # A link comes in an archive that is unpacked before the task begins (provider_sources.py).
    assert reply.split() == ["./.gitignore", "./main.py", "./pkg/.gitignore", "./pkg/mod.py"]


@told
async def test_a_directory_is_at_its_mount_path(assets: Assets) -> None:
    source = {"path": str(project(assets)), "mountPath": "/srv/code/"}
    image = await assets.ready(source=source)
    assert await assets.output(image, "cat", "/srv/code/main.py") == "the text of main.py"


@told
async def test_all_runs_of_a_template_see_the_same_directory(assets: Assets) -> None:
    top = project(assets)
    source = {"path": str(top)}
    await assets.ready(source=source)
    (top / "main.py").write_text("changed")
    for again in (assets.images, ModalImages(assets.home / "modal")):
        assets.images = again
        image = await assets.ready(source=source)
        reply = await assets.output(image, "cat", "/root/project/main.py")
        assert reply == "the text of main.py"
    # Another object takes it as it is now.
    image = await assets.ready("v", source=source)
    assert await assets.output(image, "cat", "/root/project/main.py") == "changed"


@told
async def test_after_the_scratch_space_was_freed_the_directory_is_taken_anew(
    assets: Assets,
) -> None:
    from fleetctl.providers.remote import remote_provider

    top = project(assets)
    await assets.ready(source={"path": str(top)})
    (top / "main.py").write_text("changed")
    assets.images.forget(assets.job())
    remote_provider.remove_job_files(assets.home, "modal", "u", keep_logs=True)
    assert log_of(assets) != ""
    image = await assets.ready(source={"path": str(top)})
    assert await assets.output(image, "cat", "/root/project/main.py") == "changed"


@told
async def test_a_directory_that_is_not_there_is_refused(assets: Assets) -> None:
    with pytest.raises(Refused, match="not a directory"):
        await assets.ready(source={"path": str(assets.home / "nope")})


@told
async def test_images_of_two_clients_are_apart(assets: Assets) -> None:
    image = {"run": ["echo apart > /opt/apart"]}
    first = await assets.ready(image=image)
    client, assets.client = assets.client, await assets.connect()
    second = await assets.ready(image=image)
    assert second is not first
    await client.close.aio()
    assert await assets.output(second, "cat", "/opt/apart") == "apart\n"


@told
async def test_packages_come_from_an_index_with_a_password(assets: Assets) -> None:
    private = Index(assets.home.parent / "index", SECRET[PASSWORD])
    try:
        index = PipIndex(url=private.url, secret="corp").with_login(SECRET)
        wanted = Image(pip=("fleetctl-greeting",), pip_index=index)
        image = await assets.made(Template(python="1", image=wanted))
    finally:
        private.close()
    code = "import fleetctl_greeting as g, os; print(g.text, *(it for it in os.environ.values()))"
    reply = await assets.output(image, "python", "-c", code)
    assert reply.startswith("hello") and "hush" not in reply
    assert "hush" not in log_of(assets)
