"""The small parts of remote runs: names and tags, the token bucket, lifetimes, what is ordered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.common.errors import Refused
from fleetctl.controllers.model import Ended
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.remote import remote_provider
from fleetctl.providers.remote.runs.guest_order import (
    MARK,
    SandboxContext,
    guest_order,
    mark_expired,
    work_s,
)
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.service_calls import TokenBucket
from fleetctl.specs.blocks.template import Template
from tests.unit.providers.remote import frames


def told_of(template: dict[str, Any], place: SandboxContext, **changes: Any) -> dict[str, Any]:
    """What the guest is told, as what it reads."""
    return json.loads(json.dumps(guest_order(order(template, **changes), place)))


def order(template: dict[str, Any], **changes: Any) -> RunRequest:
    fields: dict[str, Any] = {
        "run": "fl-abc", "sandbox": "fl-abc", "owner": "store", "uid": "uid-1",
        "resource": "batchjob/chunks", "index": 3, "attempt": 2,
        "template": Template.model_validate(template), "template_hash": "h",
        "params": {"a": 1}, "reusable": False,
    }  # fmt: skip
    return RunRequest(**(fields | changes))


def test_names_that_no_provider_takes_are_told_apart_by_all_of_them() -> None:
    long = "a" * 200
    runs = [long, f"{long}b", f"b{long}", f"{long[:100]}b{long[:100]}", "a/b", "a b"]
    assert len({sandbox_names.sandbox_name(run) for run in runs}) == len(runs)


@given(run=st.text(min_size=1, max_size=120), other=st.text(min_size=1, max_size=120))
def test_every_name_and_tag_is_one_that_a_provider_takes_and_tells_runs_apart(
    run: str, other: str
) -> None:
    name = sandbox_names.sandbox_name(run)
    assert name == sandbox_names.sandbox_name(run)
    assert 0 < len(name) <= 64
    assert all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
    assert (sandbox_names.sandbox_name(other) == name) == (other == run)
    carried = sandbox_names.sandbox_tags(
        order({"command": ["x"]}, run=run, resource=other), "store", 12.5
    )
    for text in [*carried, *carried.values()]:
        assert 0 < len(text) <= 63
        assert all(c.isascii() and (c.isalnum() or c in "._-") for c in text)


def test_tags_say_whose_a_sandbox_is_and_for_what_run() -> None:
    carried = sandbox_names.sandbox_tags(order({"command": ["x"]}), "store-a", 12.5)
    assert sandbox_names.is_of(carried, "store-a", "fl-abc")
    assert sandbox_names.is_ours(carried, "store-a")
    assert not sandbox_names.is_ours(carried, "store-b")
    assert not sandbox_names.is_of(carried, "store-a", "fl-xyz")
    assert not sandbox_names.is_of(carried, "store-b", "fl-abc")  # another's of the same name
    assert not sandbox_names.is_ours({}, "store-a")
    assert (sandbox_names.run_of(carried), sandbox_names.made_at_s(carried)) == ("fl-abc", 12.0)
    assert (sandbox_names.run_of({}), sandbox_names.made_at_s({"made-at": "soon"})) == ("", 0.0)


def test_a_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    async def play() -> list[float]:
        loop = asyncio.get_running_loop()
        bucket, began_s, passed = TokenBucket(50.0, 3), loop.time(), []

        async def one() -> None:
            await bucket.take()
            passed.append(loop.time() - began_s)

        await asyncio.gather(*(one() for _ in range(6)))
        return passed

    passed = asyncio.run(play())
    for place, at_s in enumerate(passed):
        assert at_s >= max(0, place - 2) / 50.0 - 0.001


def test_a_bucket_that_is_held_lets_nobody_through_and_a_cancelled_wait_gives_its_turn_back() -> (
    None
):
    async def play() -> None:
        loop = asyncio.get_running_loop()
        bucket = TokenBucket(1.0, 2)
        began_s = loop.time()
        bucket.hold(0.05)
        await bucket.take()
        assert loop.time() - began_s >= 0.049
        await bucket.take()
        waiting = asyncio.ensure_future(bucket.take())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert bucket._level.left(loop.time()) > -0.01

    asyncio.run(play())


def test_the_guest_is_told_all_of_a_command_and_no_secret_value() -> None:
    template = {
        "script": "echo hi",
        "env": {"A": "b"},
        "workdir": "/w",
        "timeoutSeconds": 5,
        "resources": {"memory": "1Gi"},
        "volumes": [
            {"name": "my-vol", "mountPath": "/data/", "links": ["/ln/"]},
            {"name": "ro", "mountPath": "/ro", "readOnly": True},
        ],
    }
    place = SandboxContext(
        "sb-1", setup=[("git", "clone")], source="/code", syncs=True, left_s=100.0
    )
    told = told_of(template, place, secrets={"TOKEN": "hush"})
    assert told["argv"] == ["/bin/sh", "-c", "echo hi"]
    assert (told["mode"], told["code"], told["timeout_s"]) == ("exec", None, 5.0)
    assert told["secret_names"] == ["TOKEN"]
    assert "hush" not in json.dumps(told)
    assert told["volumes"] == [
        {
            "name": "my-vol",
            "mount": "/data",
            "links": ["/ln"],
            "read_only": False,
            "variable": "FLEETCTL_VOLUME_MY_VOL",
        },
        {
            "name": "ro",
            "mount": "/ro",
            "links": [],
            "read_only": True,
            "variable": "FLEETCTL_VOLUME_RO",
        },
    ]
    assert told["sync"] == ["/data"]
    assert (told["source"], told["setup"]) == ({"dir": "/code"}, [["git", "clone"]])
    assert (told["identity"]["keeper"], told["memory"]) == ("sb-1", 1 << 30)


@pytest.mark.parametrize(
    ("asked_s", "left_s", "timeout_s", "marked"),
    [(None, None, None, False), (None, 90.0, 90.0, True), (50, 90.0, 50.0, False),
     (500, 90.0, 90.0, True), (50, None, 50.0, False)],
)  # fmt: skip
def test_the_shorter_of_the_tasks_limit_and_the_sandboxs_life_counts(
    asked_s: float | None, left_s: float | None, timeout_s: float | None, marked: bool
) -> None:
    template = {"python": "pass", "timeoutSeconds": asked_s}
    told = told_of(template, SandboxContext("sb-1", left_s=left_s))
    assert told["timeout_s"] == timeout_s
    assert (told["identity"]["keeper"], MARK in told["identity"]) == ("sb-1", marked)
    assert (told["mode"], told["argv"]) == ("python", [])


@pytest.mark.parametrize(
    ("left_s", "leave_s", "grace_s", "works_s"),
    [(86_400, 300, 10, 86_100), (86_400, 300, 900, 85_440), (310, 300, 10, 10), (100, 20, 30, 50),
     (20, 4, 30, 1)],
)  # fmt: skip
def test_a_sandbox_lives_long_enough_for_all_of_the_grace(
    left_s: float, leave_s: float, grace_s: float, works_s: float
) -> None:
    """Golden case 8, by age: what ends it then is not its platform."""
    assert work_s(left_s, leave_s=leave_s, grace_s=grace_s) == works_s


def test_a_template_without_work_is_refused() -> None:
    with pytest.raises(Refused, match="no work"):
        guest_order(order({}), SandboxContext("sb-1"))


@pytest.mark.parametrize(
    ("marked", "reason", "told"),
    [
        (True, "Timeout", ("MaxLifetime", True)),
        (False, "Timeout", ("Timeout", False)),
        (True, "Error", ("Error", False)),
    ],
)
def test_the_end_of_a_sandboxs_life_is_not_the_tasks_own_time_limit(
    tmp_path: Path, marked: bool, reason: str, told: tuple[str, bool]
) -> None:
    identity = {MARK: True} if marked else {}
    (tmp_path / "run-0.jsonl").write_bytes(frames.started(**identity))
    seen = Ended("run-0", "sb-1", 1.0, 2.0, False, False, reason, "", None, 0)
    after = mark_expired(seen, tmp_path)
    assert isinstance(after, Ended)
    assert (after.reason, after.infrastructure) == told


def test_scratch_goes_and_logs_stay_when_they_are_to_be_kept(tmp_path: Path) -> None:
    job = tmp_path / "accounts" / "remote" / "jobs" / "uid-1"
    for path in ("runs/run-0.log", "builds/x.log", "source-1/deep/file", "commit-1.json"):
        (job / path).parent.mkdir(parents=True, exist_ok=True)
        (job / path).write_text("x")
    for _ in range(2):
        remote_provider.remove_job_files(tmp_path, "remote", "uid-1", keep_logs=True)
    assert sorted(path.name for path in job.iterdir()) == ["builds", "runs"]
    for _ in range(2):
        remote_provider.remove_job_files(tmp_path, "remote", "uid-1", keep_logs=False)
    assert not job.exists()
