"""How runs end: limits, stops and what is left behind, for both guests of remote sandboxes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.living import alive
from tests.unit.guest.remote_world import Box, Story, wait_for

GOES_ON = "echo begun; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; " + GOES_ON


def begun(story: Story) -> bool:
    return b"begun" in story.log


def lines(story: Story) -> list[str]:
    return story.log.decode().split()


@pytest.mark.parametrize("text", [GOES_ON, DEAF])
def test_a_run_that_takes_too_long_ends_with_timeout(box: Box, text: str) -> None:
    ended = box.script(text, timeout_s=0.3, grace_s=0.1).ended
    assert (ended["ok"], ended["infra"], ended["reason"]) == (False, False, "Timeout")
    assert ended["message"] == "it ran longer than timeoutSeconds, which is 0.3"


def test_a_timeout_lets_a_run_clean_up_within_its_grace(box: Box) -> None:
    text = "trap 'echo cleaned; exit 0' TERM; echo begun; sleep 600 & wait"
    # Time enough to set the trap, also for a shell that the machine lets stand still.
    story = box.script(text, timeout_s=5.0, grace_s=60.0)
    assert lines(story) == ["begun", "cleaned"]
    assert (story.ended["reason"], story.ended["exit"]) == ("Timeout", 0)


@pytest.mark.parametrize("grace_s", [0.0, 0.2])
@pytest.mark.parametrize("text", [GOES_ON, DEAF])
def test_a_stop_ends_the_run_whatever_it_does(box: Box, text: str, grace_s: float) -> None:
    attached = box.attach(box.order(argv=["sh", "-c", text]))
    attached.until(begun)
    box.stop(grace_s=grace_s)
    ended = attached.rest().ended
    assert (ended["ok"], ended["infra"], ended["reason"]) == (False, False, "Stopped")


def test_a_stop_waits_for_the_grace_of_a_run_that_cleans_up(box: Box) -> None:
    text = "trap 'sleep 0.3; echo cleaned; exit 0' TERM; echo begun; sleep 600 & wait"
    attached = box.attach(box.order(argv=["sh", "-c", text]))
    attached.until(begun)
    box.stop(grace_s=60.0)
    story = attached.rest()
    assert lines(story) == ["begun", "cleaned"]
    assert story.ended["reason"] == "Stopped"


def test_a_second_stop_can_only_make_it_sooner(box: Box) -> None:
    attached = box.attach(box.order(argv=["sh", "-c", DEAF]))
    attached.until(begun)
    box.stop(grace_s=600.0)
    box.stop(grace_s=0.1)
    assert attached.rest().ended["reason"] == "Stopped"


def test_stopping_what_ended_or_never_was_changes_nothing(box: Box) -> None:
    box.stop(grace_s=0)
    first = box.script("echo hi", linger_s=600.0)
    box.stop(grace_s=0)
    assert box.attach().rest().journal == first.journal
    box.stop(grace_s=0, run="another")


def test_a_stop_of_another_run_changes_nothing(box: Box) -> None:
    attached = box.attach(box.order(argv=["sh", "-c", "echo begun; sleep 0.5; echo done"]))
    attached.until(begun)
    box.stop(grace_s=0, run="another")
    assert lines(attached.rest()) == ["begun", "done"]


@pytest.mark.parametrize(
    "leaves",
    [
        pytest.param("sleep 600 & echo $!", id="in-the-background"),
        pytest.param("nohup sleep 600 >/dev/null 2>&1 & echo $!", id="deaf-to-hangups"),
        pytest.param("(trap '' TERM; sleep 600) & echo $!", id="deaf-to-term"),
    ],
)
def test_what_a_run_leaves_behind_ends_with_it(box: Box, leaves: str) -> None:
    story = box.script(leaves)
    assert story.parsed.ending is not None
    assert story.parsed.ending.ok
    pid = int(lines(story)[0])
    wait_for(lambda: not alive(pid))


@pytest.mark.parametrize(
    "hides",
    [
        pytest.param("setsid sleep 600 & echo $!", id="another-session"),
        pytest.param("setsid sh -c 'sleep 600 & echo $!; exit' ", id="an-orphan"),
        pytest.param("setsid env -i sleep 600 & echo $!", id="no-variables"),
        pytest.param("(setsid env -i sleep 600 & echo $!)", id="an-orphan-without-variables"),
    ],
)
@pytest.mark.parametrize("grace_s", [0.0, 0.1])
def test_a_stop_finds_those_that_hide(box: Box, hides: str, grace_s: float) -> None:
    attached = box.attach(box.order(argv=["sh", "-c", f"{hides}; {GOES_ON}"]))
    attached.until(begun)
    pid = int(lines(attached.story)[0])
    assert alive(pid)
    box.stop(grace_s=grace_s)
    attached.rest()
    wait_for(lambda: not alive(pid))


def test_a_zombie_that_nobody_collects_holds_up_no_end(box: Box) -> None:
    """The first process of a sandbox may be one that never waits for orphans."""
    leaves = "import os, time\nif os.fork() == 0:\n    os.fork()\n    os._exit(0)\ntime.sleep(0.2)"
    story = box.told(box.order(argv=["python3", "-c", leaves], reusable=False))
    assert story.parsed.ending is not None
    assert story.parsed.ending.ok


def test_volumes_are_made_durable_before_the_end_is_told(box: Box, tmp_path: Path) -> None:
    order = box.order(
        argv=["sh", "-c", f"echo task >> {tmp_path}/said"],
        env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"},
        sync=["/data", "/more"],
    )
    _fake_sync(tmp_path, f'echo "sync $1" >> {tmp_path}/said')
    story = box.told(order, env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert story.parsed.ending is not None
    assert story.parsed.ending.ok
    assert (tmp_path / "said").read_text() == "task\nsync /data\nsync /more\n"


def test_a_run_whose_volumes_could_not_be_made_durable_has_not_succeeded(
    box: Box, tmp_path: Path
) -> None:
    _fake_sync(tmp_path, "exit 1")
    path = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    ended = box.told(box.order(sync=["/data"]), env=path).ended
    assert (ended["ok"], ended["infra"], ended["reason"]) == (False, True, "SyncFailed")
    assert "/data" in ended["message"]


def test_volumes_are_made_durable_while_a_long_run_goes_on(box: Box, tmp_path: Path) -> None:
    _fake_sync(tmp_path, f'echo "sync $1" >> {tmp_path}/said')
    text = f"until grep -q . {tmp_path}/said; do sleep 0.05; done; echo seen"
    order = box.order(argv=["sh", "-c", text], sync=["/data"], sync_s=0.2)
    story = box.told(order, env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert story.log == b"seen\n"


def _fake_sync(tmp_path: Path, text: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "said").touch()
    (tmp_path / "bin" / "sync").write_text(f"#!/bin/sh\n{text}\n")
    (tmp_path / "bin" / "sync").chmod(0o755)


def test_a_sandbox_is_prepared_once_before_its_first_task(box: Box, tmp_path: Path) -> None:
    setup = [["sh", "-c", f"mkdir {tmp_path}/src; echo cloning"], ["touch", f"{tmp_path}/src/a"]]
    source = {"dir": f"{tmp_path}/src"}
    story = box.script("ls", setup=setup, source=source, reusable=True, linger_s=600.0)
    assert story.log == b"cloning\na\n"
    again = box.script("ls", run="run-1", setup=setup, source=source)
    assert again.log == b"a\n"


@pytest.mark.parametrize("failing", [["sh", "-c", "echo no access >&2; exit 128"], ["no-git"]])
def test_preparations_that_fail_end_the_run_before_its_work(box: Box, failing: list[str]) -> None:
    story = box.script("echo never-to-be-said", setup=[failing])
    ended = story.ended
    assert (ended["ok"], ended["infra"], ended["reason"]) == (False, True, "SourceFailed")
    assert "no access" in ended["message"] or "no-git" in ended["message"]
    assert b"never-to-be-said" not in story.log


def test_links_lead_to_a_volume(box: Box, tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    (tmp_path / "empty").mkdir()
    links = [f"{tmp_path}/empty", f"{tmp_path}/home/ray/data"]
    volume = {"name": "v", "mount": str(mount), "links": links, "read_only": False}
    volume["variable"] = "FLEETCTL_VOLUME_V"
    text = f"touch {links[0]}/a {links[1]}/b"
    assert box.script(text, volumes=[volume]).ended["ok"]
    assert sorted(one.name for one in mount.iterdir()) == ["a", "b"]


def test_a_link_that_would_hide_files_of_the_image_fails_the_run(box: Box, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    volume = {"name": "v", "mount": "/data", "links": [f"{tmp_path}/full"], "read_only": False}
    volume["variable"] = "FLEETCTL_VOLUME_V"
    ended = box.script("echo work", volumes=[volume]).ended
    assert (ended["ok"], ended["infra"], ended["reason"]) == (False, False, "StartFailed")
    assert f"{tmp_path}/full" in ended["message"]


SECRET = "sup3r-s3cret-value"


def test_the_value_of_a_secret_reaches_the_task_and_nothing_else(box: Box, tmp_path: Path) -> None:
    text = (
        'test "$TOKEN" = $(cat expected) && echo same; echo begun; '
        "until test -e go; do sleep 0.05; done"
    )
    work = tmp_path / "code"
    work.mkdir()
    (work / "expected").write_text(SECRET)
    order = box.order(
        argv=["sh", "-c", text],
        secret_names=["TOKEN", "MISSING"],
        source={"dir": str(work)},
        sync=["/"],
        linger_s=600.0,
    )
    attached = box.attach(order, env={"TOKEN": SECRET})
    attached.until(begun)
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True).stdout
    assert SECRET.encode() not in shown
    (work / "go").touch()
    story = attached.rest()
    assert lines(story)[:2] == ["same", "begun"]
    assert SECRET not in str(story.frames)
    for path in box.directory.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()
