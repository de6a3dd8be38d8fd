"""The controller's socket: real requests over a real Unix socket, with a store in memory."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetctl.apply.cost.estimate import CostForecast, Forecaster
from fleetctl.controllers.budget import CostEstimate
from fleetctl.controllers.model import Resource
from fleetctl.daemon.api import ControllerApi
from fleetctl.engine.execute.secrets import SecretValues
from fleetctl.tracking.annotations import ORIGIN, REVISION
from fleetctl.tracking.kept_by import KEPT_BY, KeptBy
from fleetctl.tracking.manifest_sources import ManifestSources
from tests.unit.engine.fake_world import Fleet, ManualClock, tasks

JOB = """
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: job}
spec:
  completions: 2
  template: {python: "SUBMIT(ok=True)"}
"""
SECRET = """
apiVersion: fleetctl.dev/v1alpha1
kind: Secret
metadata: {name: keys}
spec: {fromEnv: [KEY]}
"""
POLICY = """
apiVersion: fleetctl.dev/v1alpha1
kind: Policy
metadata: {name: limits}
spec:
  match: {kinds: [BatchJob]}
  rules: [{expression: object.spec.completions <= 2}]
"""
CANARY = "hunter2-canary"


class Served:
    """A fleet whose API listens on `place`."""

    def __init__(self, fleet: Fleet, place: Path) -> None:
        self.fleet = fleet
        self.place = place
        self.secrets = SecretValues(fleet.store, {})
        self.ended = asyncio.Event()

    async def send(self, line: bytes) -> bytes:
        """What the controller answers to these bytes; empty when it hangs up."""
        reader, writer = await asyncio.open_unix_connection(str(self.place))
        writer.write(line)
        if not line.endswith(b"\n"):
            writer.write_eof()
        try:
            return await reader.read()
        finally:
            writer.close()

    async def ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        line = json.dumps({"verb": verb, **fields}).encode() + b"\n"
        reply: dict[str, Any] = json.loads(await self.send(line))
        return reply

    async def apply(self, *texts: str, **fields: Any) -> dict[str, Any]:
        documents = [{"path": "f.yaml", "text": text, "dir": "/"} for text in texts]
        return await self.ask("apply", documents=documents, **fields)


@asynccontextmanager
async def served(tmp_path: Path, forecaster: Forecaster | None = None) -> AsyncIterator[Served]:
    async with Fleet() as fleet:
        place = tmp_path / "s"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(place))
        listener.setblocking(False)
        found = Served(fleet, place)
        api = ControllerApi(
            fleet.engine.state,
            fleet.engine.market,
            found.secrets,
            shutdown=found.ended.set,
            forecaster=forecaster,
        )
        server = await api.serve(listener)
        try:
            yield found
        finally:
            server.close()


async def test_a_question_does_not_wait_for_all_that_is_to_be_looked_at(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        fleet, spec = api.fleet, json.dumps(tasks(1, suspend=True))
        with fleet.store.transaction():
            for number in range(640):
                uid = f"u{number}"
                desired = Resource(uid, "BatchJob", uid, 1, 0, spec, "", {}, {}, 1.0)
                fleet.store.resources.put(desired, expected_version=None)
        running = asyncio.ensure_future(fleet.engine.run())
        try:
            while not fleet.engine.state.tracks:
                await asyncio.sleep(0)
            assert (await api.ask("ping"))["ok"]
            assert len(fleet.engine.state.queue) >= 640 - 2 * fleet.settings.keys_per_tick_max
        finally:
            fleet.engine.stop()
            await running


async def test_a_ping_tells_who_answers_and_what_runs(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(JOB)
        await api.fleet.settle()
        reply = await api.ask("ping")
        assert (reply["ok"], reply["ready"], reply["live"]) == (True, True, 2)
        assert reply["pid"] > 0


@pytest.mark.parametrize("change", [{"rerun": True}, {"rollout": "FinishRunning"}])
async def test_policies_judge_a_change_that_carries_the_time_of_its_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    async with served(tmp_path) as api:
        assert (await api.apply(POLICY, JOB))["ok"]
        await api.fleet.settle()
        times_s = itertools.count(2_000.0, 0.001)
        monkeypatch.setattr(ManualClock, "now_s", lambda _: next(times_s))
        reply = await api.apply(JOB.replace("ok=True", "ok=1"), yes=True, **change)
        assert [it["outcome"] for it in reply.get("results", ())] == ["configured"], reply


async def test_an_applied_manifest_is_stored_when_the_answer_comes(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        reply = await api.apply(JOB)
        assert reply == {
            "ok": True,
            "results": [{"key": "batchjob/job", "outcome": "created", "message": "2 tasks"}],
            "warnings": [],
        }
        assert api.fleet.names() == ["job"]
        await api.fleet.settle()
        assert api.fleet.local.working() == [0, 1]


async def test_what_work_is_estimated_to_cost_is_told_and_stands_in_its_status(
    tmp_path: Path,
) -> None:
    fields = {"batchjob/job": CostForecast(CostEstimate(6.1, 4.8, 8.9), {"action": "create"})}
    async with served(tmp_path, lambda _: fields) as api:
        api.fleet.local.price = 0.001
        reply = await api.apply(JOB)
        assert reply["planned"] == {"batchjob/job": {"action": "create"}}
        await api.fleet.settle()
        found = {"estimated": 6.1, "estimatedLow": 4.8, "estimatedHigh": 8.9}
        assert api.fleet.status("job")["cost"].items() >= found.items()
        await api.fleet.crash()
        await api.fleet.settle()
        assert api.fleet.status("job")["cost"].items() >= found.items()


async def test_an_estimate_is_of_the_spec_that_it_was_made_for(tmp_path: Path) -> None:
    fields = {"batchjob/job": CostForecast(CostEstimate(6.1, 4.8, 8.9), {})}
    async with served(tmp_path, lambda _: fields) as api:
        api.fleet.local.price = 0.001
        await api.apply(JOB)
        fields["batchjob/job"] = CostForecast(CostEstimate(9.0, 9.0, 9.0), {})
        await api.apply(JOB)
        await api.fleet.settle()
        assert api.fleet.status("job")["cost"]["estimated"] == 6.1
        await api.ask("set", key="batchjob/job", fields=["completions=3"])
        await api.fleet.settle()
        assert api.fleet.status("job")["cost"]["estimated"] == 9.0
        api.fleet.local.price = 0.0
        assert (await api.apply(JOB, yes=True))["ok"]
        await api.fleet.settle()
        assert "estimated" not in api.fleet.status("job")["cost"]


async def test_what_is_free_is_not_reckoned(tmp_path: Path) -> None:
    asked: list[object] = []

    def forecaster(*given: object) -> dict[str, CostForecast]:
        asked.append(given)
        return {}

    async with served(tmp_path, forecaster) as api:
        await api.apply(JOB)
        assert not asked
        api.fleet.local.price = None  # nobody knows, so it is not free
        await api.apply(JOB)
        assert len(asked) == 1


async def test_a_wrong_manifest_is_refused_with_its_place_and_nothing_is_stored(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as api:
        reply = await api.apply(JOB, JOB.replace("completions: 2", "completion: 2"))
        assert (reply["ok"], reply["code"]) == (False, 2)
        assert any("f.yaml:6:3" in error for error in reply["errors"])
        assert api.fleet.names() == []


async def test_a_placement_that_nobody_serves_is_refused_at_once(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        reply = await api.apply(JOB + "  placement: {provider: mars}\n")
        assert (reply["ok"], reply["code"]) == (False, 2)
        assert "`mars`" in reply["errors"][0]
        hint = reply["findings"][0]["hint"]
        assert hint.startswith("there is `local`; `kind: Provider` with a `type`")
        assert api.fleet.names() == []


async def test_a_secret_asks_for_its_variables_first_and_no_reply_shows_them(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as api:
        assert await api.apply(SECRET) == {"ok": False, "needEnv": ["KEY"]}
        assert api.fleet.names() == []
        reply = await api.apply(SECRET, env={"KEY": CANARY, "PATH": "/bin"})
        assert reply["ok"]
        assert CANARY not in json.dumps(reply)
        assert CANARY not in "\n".join(api.fleet.database.state.iterdump())


async def test_suspend_resume_and_delete_take_any_name_of_a_kind(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(JOB)
        await api.fleet.settle()
        reply = await api.ask("suspend", keys=["job/job"])
        assert reply["results"] == [{"key": "batchjob/job", "outcome": "suspended", "message": ""}]
        await api.fleet.settle()
        assert api.fleet.local.working() == []
        assert (await api.ask("suspend", keys=["jobs/job"]))["results"][0]["outcome"] == "unchanged"
        await api.ask("resume", keys=["BatchJob/job"])
        await api.fleet.settle()
        assert api.fleet.local.working() == [0, 1]
        reply = await api.ask("delete", keys=["batchjob/job"])
        assert reply["results"][0]["uid"] == api.fleet.row("job").uid
        await api.fleet.settle()
        assert api.fleet.names() == []


async def test_a_field_is_set_as_an_apply_would_change_it(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(JOB)
        await api.fleet.settle()
        reply = await api.ask("set", key="job/job", fields=["parallelism=3", "budget.maxCost=2.5"])
        (result,) = reply["results"]
        assert (result["key"], result["outcome"]) == ("batchjob/job", "configured")
        spec = json.loads(api.fleet.row("job").spec)
        assert (spec["parallelism"], spec["budget"]) == (3, {"maxCost": 2.5})
        again = await api.ask("set", key="job/job", fields=["parallelism=3"])
        assert again["results"][0]["outcome"] == "unchanged"
        await api.ask("set", key="job/job", fields=["budget=null"])
        assert "budget" not in json.loads(api.fleet.row("job").spec)
        await api.fleet.settle()
        refused = await api.ask("set", key="job/job", fields=["parallelism=1"])
        assert (refused["ok"], refused["code"]) == (False, 3)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("parallelism=-1", "batchjob/job: spec.parallelism is `-1`; it must be at least 0"),
        ("paralelism=2", "batchjob/job: spec.paralelism is an unknown field"),
        ("budget.maxCost=$3", "batchjob/job: spec.budget.maxCost is `$3`; it must be a number of"),
        ("parallelism", "`parallelism` is not FIELD=VALUE"),
        ("tasks.items.0=1", "`tasks.items` is a list, which has no `0`"),
        ("tasks.items[1].x=1", "`tasks.items` has 1 entries, so there is no [1]"),
        ("tasks.items[x]=1", "`tasks.items[x]` is not the path of a field"),
        ("template.python.x=1", "`template.python.x` leads through `template.python`, which"),
        ("labels.team=a b", "batchjob/job: metadata.labels.team"),
    ],
)
async def test_a_field_that_cannot_be_set_says_why_and_changes_nothing(
    tmp_path: Path, field: str, said: str
) -> None:
    async with served(tmp_path) as api:
        job = {"spec": {"tasks": {"items": [{}]}, "template": {"python": "SUBMIT()"}}}
        head = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": "BatchJob"}
        await api.apply(json.dumps({**head, "metadata": {"name": "job"}, **job}))
        reply = await api.ask("set", key="job/job", fields=[field])
        assert (reply["ok"], reply["code"]) == (False, 2)
        assert reply["errors"][0].startswith(said)
        assert api.fleet.row("job").generation == 1


async def test_an_entry_of_a_list_and_labels_are_set_like_fields(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        job = {"spec": {"tasks": {"items": [{"x": 1}, {"x": 2}]}, "template": {"python": "pass"}}}
        head = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": "BatchJob"}
        about = {"name": "job", "labels": {"old": "1"}, "annotations": {"note": "kept"}}
        await api.apply(json.dumps({**head, "metadata": about, **job}))
        fields = ["tasks.items[1].x=5", "labels.a.dev/team=rlm", "metadata.labels.old=null"]
        await api.ask("set", key="job/job", fields=fields)
        row = api.fleet.row("job")
        assert json.loads(row.spec)["tasks"]["items"] == [{"x": 1}, {"x": 5}]
        assert row.labels == {"a.dev/team": "rlm"}
        assert row.annotations["note"] == "kept"


async def test_labels_alone_touch_no_work(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(JOB)
        await api.fleet.settle()
        before = api.fleet.row("job")
        words = {"labels": {"team": "rlm"}, "annotations": {"note": "a = b"}}
        reply = await api.ask("set", key="job/job", **words)
        assert reply["ok"] is True, reply
        row = api.fleet.row("job")
        assert (row.labels, row.annotations["note"]) == ({"team": "rlm"}, "a = b")
        assert row.generation == before.generation
        await api.ask("set", key="job/job", labels={"team": None})
        assert api.fleet.row("job").labels == {}


async def test_a_dry_run_tells_what_would_be_lost_and_stores_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(JOB)
        await api.fleet.settle()
        fewer = JOB.replace("completions: 2", "completions: 1")
        reply = await api.apply(fewer, dryRun=True)
        assert reply["ok"] is True and "1 running task would be stopped" in reply["losses"][0]
        assert "--yes" in reply["hint"]
        assert api.fleet.row("job").generation == 1


async def test_a_label_leaves_the_source_as_it_was_applied(tmp_path: Path) -> None:
    """Also where the directory has moved on since: nobody has looked at it."""
    for name in ("src", "other"):
        (tmp_path / "project" / name).mkdir(parents=True)
        (tmp_path / "project" / name / "a.py").write_text(f"print('{name}')")
    text = JOB.replace('python: "SUBMIT(ok=True)"', "script: ls, source: {path: src}")
    document = {"path": "f.yaml", "text": text, "dir": str(tmp_path / "project")}
    async with served(tmp_path) as api:
        api.fleet.engine.state.sources = ManifestSources(tmp_path / "home")
        await api.ask("apply", documents=[document])
        before = api.fleet.row("job").annotations
        assert before[REVISION] and before[ORIGIN] == str(tmp_path / "project" / "src")
        (tmp_path / "project" / "src" / "a.py").write_text("print('newer')")
        for edit in ({"labels": {"team": "rlm"}}, {"fields": ["parallelism=1"]}):
            assert (await api.ask("set", key="job/job", **edit))["ok"] is True
            now = api.fleet.row("job").annotations
            assert (now[ORIGIN], now[REVISION]) == (before[ORIGIN], before[REVISION])
        assert api.fleet.row("job").labels == {"team": "rlm"}
        await api.ask("set", key="job/job", fields=["template.source.path=other"])
        after = api.fleet.row("job").annotations
        assert after[ORIGIN] == str(tmp_path / "project" / "other")
        assert after[REVISION] not in ("", before[REVISION])


async def test_an_edit_of_what_was_changed_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(JOB)
        spec = json.loads(api.fleet.row("job").spec)
        await api.ask("set", key="job/job", fields=["parallelism=3"])
        reply = await api.ask("set", key="job/job", spec=spec, generation=1)
        assert (reply["ok"], reply["code"]) == (False, 5)
        assert json.loads(api.fleet.row("job").spec)["parallelism"] == 3
        again = {**spec, "parallelism": 4}
        assert (await api.ask("set", key="job/job", spec=again, generation=2))["ok"] is True
        assert json.loads(api.fleet.row("job").spec)["parallelism"] == 4


async def test_scaling_down_can_let_running_work_end(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(JOB)
        await api.fleet.settle()
        refused = await api.ask("set", key="job/job", fields=["parallelism=1"])
        assert (refused["code"], "--rollout=FinishRunning" in refused["hint"]) == (3, True)
        asked = {"fields": ["parallelism=1"], "rollout": "FinishRunning"}
        reply = await api.ask("set", key="job/job", **asked)
        assert reply["ok"] is True, reply
        await api.fleet.settle()
        assert api.fleet.local.working() == [0, 1]


async def test_what_is_not_there_is_an_error_with_its_own_code(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        reply = await api.ask("delete", keys=["job/nobody"])
        assert (reply["ok"], reply["code"]) == (False, 4)
        assert reply["errors"] == ["batchjob/nobody is not there"]


async def test_requests_of_a_wrong_form_are_refused_and_the_next_one_is_served(
    tmp_path: Path,
) -> None:
    wrong = [
        b"\n",
        b"not json\n",
        b"\xff\xfe\n",
        b"[]\n",
        b'"text"\n',
        b"{}\n",
        b'{"verb":["apply"]}\n',
        b'{"verb":"drop everything"}\n',
        b'{"verb":"apply"}\n',
        b'{"verb":"apply","documents":[7]}\n',
        b'{"verb":"apply","documents":[{}]}\n',
        b'{"verb":"apply","documents":"x"}\n',
        b'{"verb":"delete","keys":["job"]}\n',
        b'{"verb":"delete","keys":[{"a":1}]}\n',
        b'{"verb":"delete","keys":["moon/a"]}\n',
        b"[" * 100_000 + b"\n",
    ]
    async with served(tmp_path) as api:
        for line in wrong:
            reply = json.loads(await api.send(line))
            assert reply["ok"] is False, line[:60]
            assert reply["code"] == 2, line[:60]
        assert (await api.ask("ping"))["ok"]


async def test_half_a_request_gets_no_answer_and_has_no_effect(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        assert await api.send(b'{"verb":"shutdown"') == b""
        assert not api.ended.is_set()
        assert (await api.ask("ping"))["ok"]


async def test_a_shutdown_is_answered_before_it_happens(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        assert (await api.ask("shutdown"))["ok"]
        await asyncio.wait_for(api.ended.wait(), 300)


async def test_many_clients_at_once_are_all_answered(tmp_path: Path) -> None:
    texts = [JOB.replace("name: job", f"name: job-{number}") for number in range(20)]
    async with served(tmp_path) as api:
        replies = await asyncio.gather(*(api.apply(text) for text in texts))
        assert all(reply["ok"] for reply in replies)
        assert len(api.fleet.names()) == 20


async def test_another_user_who_reaches_the_socket_gets_no_answer_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the kernel says of the other end; tests that run as root could not be another user."""
    said, somebody = socket.socket.getsockopt, struct.pack("3i", 4242, os.getuid() + 4242, 4242)

    def told(connection: socket.socket, level: int, option: int, *more: int) -> bytes | int:
        if option == socket.SO_PEERCRED:
            return somebody
        return said(connection, level, option, *more)

    async with served(tmp_path) as api:
        monkeypatch.setattr(socket.socket, "getsockopt", told)
        documents = [{"path": "f.yaml", "text": JOB, "dir": "/"}]
        request = json.dumps({"verb": "apply", "documents": documents}).encode() + b"\n"
        reply = b""
        with suppress(ConnectionResetError):  # it hangs up with our words unread
            reply = await api.send(request)
        assert reply == b""
        await api.fleet.settle()
        assert api.fleet.names() == []
        monkeypatch.undo()
        assert (await api.apply(JOB))["ok"]


async def test_finished_work_is_asked_about_before_anything_is_stored(tmp_path: Path) -> None:
    """A planted bug: consent that is asked for after the write."""
    async with served(tmp_path) as api:
        fleet, other = api.fleet, JOB.replace("ok=True", "ok=2")
        await api.apply(JOB)
        await fleet.settle()
        fleet.clock.time_s += 300
        for index in (0, 1):
            fleet.local.finish(index)
        await fleet.settle()
        reply = await api.apply(other)
        assert (reply["ok"], reply["code"]) == (False, 3)
        assert "2 finished tasks, 10 min, would run again" in reply["losses"][0]
        row = fleet.row("job")
        assert (row.generation, "ok=True" in row.spec) == (1, True)
        await fleet.settle()
        assert fleet.local.working() == []
        assert (await api.apply(other, yes=True))["ok"] is True
        await fleet.settle()
        assert fleet.local.working() == [0, 1]


async def test_one_that_a_source_keeps_stops_no_other(tmp_path: Path) -> None:
    note = KeptBy("source/fleet", "a.yaml:1", "c" * 40, "digest").text()
    async with served(tmp_path) as api:
        texts = [JOB.replace("name: job", f"name: {it}") for it in ("kept", "free")]
        documents = [{"path": "f.yaml", "text": it, "dir": str(tmp_path)} for it in texts]
        await api.ask("apply", documents=documents)
        row, store = api.fleet.row("kept"), api.fleet.store
        with store.transaction():
            store.resources.put(
                replace(row, annotations={KEPT_BY: note}), expected_version=row.version
            )
        keys = ["job/kept", "job/free", "job/none"]
        for verb, word in (("suspend", "suspended"), ("delete", "deleted")):
            reply = await api.ask(verb, keys=keys, each=True)
            assert {it["key"]: it["outcome"] for it in reply["results"]} == {
                "batchjob/free": word,
                "batchjob/kept": "refused",
                "batchjob/none": "missing",
            }
            assert not (await api.ask(verb, keys=keys))["ok"]
        assert api.fleet.row("kept").deleted_at_s is None
