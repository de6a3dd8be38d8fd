"""What people ask of schedules: by hand, suspended, deleted, pruned; and what source runs get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fleetctl.engine.kinds.schedules import Schedules
from fleetctl.tracking.annotations import REVISION, SCHEDULED_BY
from fleetctl.tracking.manifest_sources import ManifestSources
from tests.unit.engine.test_engine_api import Served, served
from tests.unit.providers.test_gitsource import Repository

HOUR_S = 3600.0
SCHEDULE = """
apiVersion: fleetctl.dev/v1alpha1
kind: Schedule
metadata: {name: tick}
spec:
  schedule: "@hourly"
  template:
    kind: BatchJob
    metadata: {labels: {team: eval}}
    spec:
      completions: 2
      template: {python: "SUBMIT(ok=True)"}
"""


def jobs(api: Served) -> dict[str, Any]:
    rows = [it for it in api.fleet.store.resources.list() if it.kind == "BatchJob"]
    return {it.name: it for it in rows if it.deleted_at_s is None}


async def test_one_by_hand_leaves_the_schedule_as_it_is(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(SCHEDULE)
        await api.fleet.settle()
        before = api.fleet.status("tick")
        asked = {"from": "schedule/tick", "kind": "job"}
        reply = await api.ask("create", **asked, name="now")
        assert reply["results"][0]["key"] == "batchjob/now"
        assert jobs(api)["now"].labels == {"team": "eval", "fleetctl.dev/schedule": "tick"}
        await api.fleet.settle()
        assert api.fleet.local.working() == [0, 1]
        assert api.fleet.status("tick") == before
        again = await api.ask("create", **asked, name="now")
        assert (again["ok"], again["code"]) == (False, 5)
        other = await api.ask("create", **{**asked, "kind": "sweep"})
        assert other["hint"] == "fleetctl create batchjob --from schedule/tick"
        unnamed = await api.ask("create", **asked)
        assert unnamed["results"][0]["key"].startswith("batchjob/tick-manual-")


async def test_suspend_and_resume(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(SCHEDULE)
        keys = ["schedule/tick"]
        assert (await api.ask("suspend", keys=keys))["results"][0]["outcome"] == "suspended"
        await api.fleet.later(2 * HOUR_S)
        assert (jobs(api), api.fleet.status("tick")["phase"]) == ({}, "Suspended")
        assert (await api.ask("resume", keys=keys))["results"][0]["outcome"] == "resumed"
        await api.fleet.settle()
        assert len(jobs(api)) == 1, "the last one that was missed starts late"


async def test_orphans_of_a_deleted_schedule_work_on(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(SCHEDULE)
        await api.fleet.later(HOUR_S)
        await api.ask("delete", keys=["schedule/tick"], cascade="orphan")
        await api.fleet.settle()
        (job,) = jobs(api).values()
        assert SCHEDULED_BY not in job.annotations
        assert api.fleet.names() == [job.name]
        assert api.fleet.local.working() == [0, 1]


async def test_one_that_is_deleted_by_force_waits_for_none_of_its_runs(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(SCHEDULE)
        await api.fleet.later(HOUR_S)
        api.fleet.local.deaf = True
        deleted = await api.ask("delete", keys=["schedule/tick"])
        await api.fleet.settle()
        assert len(api.fleet.names()) == 2, "its runs are not confirmed gone"
        reply = await api.ask("abandon", uids=[deleted["results"][0]["uid"]])
        await api.fleet.settle()
        assert api.fleet.names() == []
        assert [len(it["left"]) for it in reply["results"]] == [0, 2]


async def test_pruning_a_schedule_asks_for_what_runs_of_it(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(SCHEDULE, applyset="nights")
        await api.fleet.later(HOUR_S)
        (name,) = jobs(api)
        pruned = {"applyset": "nights", "prune": True}
        reply = await api.ask("apply", documents=[], **pruned)
        assert [it.split(":")[0] for it in reply["losses"]] == [f"batchjob/{name}"]
        assert api.fleet.local.working() == [0, 1]
        done = await api.ask("apply", documents=[], **pruned, yes=True)
        assert {it["key"] for it in done["results"]} == {f"batchjob/{name}", "schedule/tick"}
        await api.fleet.settle()
        assert (api.fleet.names(), api.fleet.local.working()) == ([], [])


async def test_a_repository_is_asked_for_each_run(tmp_path: Path) -> None:
    origin = Repository(tmp_path / "origin")
    first = origin.commit("train.py", "1")
    source = f"source: {{git: {{url: '{origin.url}', ref: main}}}}, script: ls"
    async with served(tmp_path) as api:
        sources = ManifestSources(tmp_path / "home")
        api.fleet.use_sources(sources)
        await api.apply(SCHEDULE.replace('python: "SUBMIT(ok=True)"', source))
        assert api.fleet.row("tick").annotations[REVISION] == first
        second = origin.commit("train.py", "2")
        await api.fleet.later(HOUR_S)
        await api.fleet.engine.parts.get(Schedules).looked()
        await api.fleet.settle()
        (job,) = jobs(api).values()
        assert job.annotations[REVISION] == second


async def test_a_directory_is_the_copy_of_the_last_apply(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "run.sh").write_text("echo 1")
    source = f"source: {{path: '{code}'}}, script: ls"
    async with served(tmp_path) as api:
        api.fleet.use_sources(ManifestSources(tmp_path / "home"))
        await api.apply(SCHEDULE.replace('python: "SUBMIT(ok=True)"', source))
        applied = api.fleet.row("tick").annotations[REVISION]
        (code / "run.sh").write_text("echo half of an ed")
        await api.fleet.later(HOUR_S)
        (job,) = jobs(api).values()
        assert job.annotations[REVISION] == applied


async def test_a_wrong_field_of_the_template_is_refused_where_it_is_set(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(SCHEDULE)
        asked = {"key": "schedule/tick"}
        reply = await api.ask("set", **asked, fields=["template.spec.completions=many"])
        assert "spec.completions" in reply["errors"][0]
        await api.ask("set", **asked, fields=["template.spec.completions=1"])
        stored = json.loads(api.fleet.row("tick").spec)
        assert stored["template"]["spec"]["completions"] == 1


async def test_what_its_runs_would_lack_is_said_at_its_place(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        written = SCHEDULE.replace('(ok=True)"', '(ok=True)", secrets: [keys]')
        reply = await api.apply(written)
        (error,) = reply["errors"][0].splitlines()[:1]
        assert error.startswith("f.yaml:12:")
        assert "spec.template.spec.template.secrets[0] is `keys`" in error
        stored = await api.apply(written, allowMissing=True)
        assert stored["results"][0]["outcome"] == "created"
