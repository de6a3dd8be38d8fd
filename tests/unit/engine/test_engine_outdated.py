"""What an edit of the work does to what is finished: told, asked for, and done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetctl.apply.change import Change
from fleetctl.apply.consent import NeedsConsent, check_consent, list_approvable
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions, order_of
from fleetctl.apply.write import commit as writing
from fleetctl.apply.write.requeue import RetryChoice, requeue_units
from fleetctl.apply.write.store_changes import store_changes
from fleetctl.common.errors import Unavailable, UsageError
from fleetctl.controllers.model import RunState
from fleetctl.manifest import Manifest
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.tracking.annotations import KEPT, RERUN, ROLLOUT
from fleetctl.tracking.manifest_sources import ManifestSources
from fleetctl.tracking.source_state import SourceState
from tests.unit.engine.fake_world import Fleet

ONE, TWO = {"python": "SUBMIT(y=x)"}, {"python": "SUBMIT(y=-x)"}
CALLS = {"python": "SUBMIT()", "function": "f"}


def manifest(name: str = "job", kind: str = "BatchJob", **fields: Any) -> Manifest:
    spec = KINDS[kind].spec.model_validate(fields)
    about = Metadata.model_validate({"name": name})
    return Manifest(kind, name, about, spec, "job.yaml", 1)


def job(**fields: Any) -> Manifest:
    return manifest(**{"template": ONE, "completions": 3, "parallelism": 3, **fields})


def changes(fleet: Fleet, *manifests: Manifest, **said: Any) -> list[Change]:
    return propose_changes(fleet.store, manifests, order_of(said), fleet.clock.now_s())


async def apply(fleet: Fleet, *manifests: Manifest, **said: Any) -> list[Change]:
    found = changes(fleet, *manifests, **said)
    store_changes(fleet.store, found, fleet.clock.now_s())
    await fleet.settle()
    return found


async def finish(fleet: Fleet, after_s: float = 0.0) -> list[int]:
    """Which tasks worked until nothing did any more."""
    worked: list[int] = []
    while working := fleet.local.working():
        fleet.clock.time_s += after_s
        worked += working
        for index in working:
            fleet.local.finish(index)
        await fleet.settle()
    return sorted(worked)


async def test_another_program_runs_again_what_was_finished() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job())
        assert await finish(fleet) == [0, 1, 2]
        [change] = await apply(fleet, job(template=TWO))
        assert change.message.endswith("3 to run again")
        assert fleet.status("job")["outdated"] == 3
        assert await finish(fleet) == [0, 1, 2]
        status = fleet.status("job")
        assert (status["phase"], status["succeeded"], status["outdated"]) == ("Succeeded", 3, 0)
        assert len({run.content for run in fleet.runs("job")}) == 2


async def test_an_equal_file_and_another_limit_run_nothing() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job())
        await finish(fleet)
        [same] = await apply(fleet, job())
        assert same.outcome == "unchanged"
        await apply(fleet, job(template={**ONE, "resources": {"cpu": 2}, "timeoutSeconds": 9}))
        assert (await finish(fleet), fleet.status("job")["phase"]) == ([], "Succeeded")


async def test_an_edit_that_is_taken_back_finds_its_results_again() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job())
        await finish(fleet)
        await apply(fleet, job(template=TWO))
        await finish(fleet)
        [change] = await apply(fleet, job())
        assert change.message.endswith("3 cached")
        assert (await finish(fleet), fleet.status("job")["cached"]) == ([], 3)


async def test_finished_work_that_took_time_is_asked_about_before_it_is_stored() -> None:
    async with Fleet() as fleet:
        fleet.local.price = 0.01
        await apply(fleet, job())
        await finish(fleet, after_s=240)
        found = changes(fleet, job(template=TWO))
        with pytest.raises(NeedsConsent) as refused:
            check_consent(found, (), fleet.clock.now_s())
        assert str(refused.value) == (
            "batchjob/job: template.python changed: "
            "3 finished tasks, 12 min and $7.20, would run again"
        )
        assert "--keep-finished" in refused.value.hint and "--yes" in refused.value.hint
        check_consent(
            found, list_approvable(found), fleet.clock.now_s()
        )  # a saved plan has shown it
        check_consent(changes(fleet, job(template=TWO), keepFinished=True), (), fleet.clock.now_s())
        # A planted bug: consent that is asked for after the write.
        assert fleet.row("job").generation == 1


async def test_work_of_seconds_and_cached_work_is_not_asked_about() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job())
        await finish(fleet, after_s=1)
        check_consent(changes(fleet, job(template=TWO)), (), fleet.clock.now_s())
        await apply(fleet, job(template=TWO))
        await finish(fleet, after_s=240)
        check_consent(changes(fleet, job()), (), fleet.clock.now_s())


async def test_kept_work_counts_until_the_work_changes_again() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job())
        await finish(fleet)
        [change] = await apply(fleet, job(template=TWO, completions=4), keepFinished=True)
        assert "3 kept, 3 of them outdated, 1 to run" in change.message
        assert await finish(fleet) == [3]
        status = fleet.status("job")
        assert (status["phase"], status["succeeded"], status["outdated"]) == ("Succeeded", 4, 3)
        assert "onChange" not in fleet.row("job").spec
        [same] = await apply(fleet, job(template=TWO, completions=4))
        assert same.outcome == "unchanged"
        await fleet.crash()
        await fleet.settle()
        assert await finish(fleet) == []
        await apply(fleet, job(template={"python": "SUBMIT(z=1)"}, completions=4))
        assert await finish(fleet) == [0, 1, 2, 3]
        assert KEPT not in fleet.row("job").annotations


async def test_a_rollout_of_one_apply_is_no_part_of_the_object() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job(completions=2, parallelism=1))
        fields = {"rollout": "FinishRunning"}
        wanted = job(template=TWO, completions=2, parallelism=1)
        await apply(fleet, wanted, **fields)
        assert "rollout" not in fleet.row("job").spec
        assert await finish(fleet) == [0, 1]  # what ran was left alone, and counts
        assert fleet.status("job")["outdated"] == 1
        [same] = changes(fleet, wanted)
        assert same.outcome == "unchanged"
        await apply(fleet, job(template=ONE, completions=2, parallelism=1))
        assert ROLLOUT not in fleet.row("job").annotations


async def test_a_rerun_takes_nothing_that_is_known() -> None:
    async with Fleet() as fleet:
        await apply(fleet, manifest(name="other", template=ONE, completions=5))
        await finish(fleet)
        shared = {"cache": {"policy": "ReuseSucceeded"}}
        await apply(fleet, job(**shared))
        assert fleet.status("job")["cached"] == 3
        await apply(fleet, job(completions=5, parallelism=5, **shared), rerun=True)
        assert await finish(fleet) == [0, 1, 2, 3, 4]
        requeue_units(fleet.store, "BatchJob", "job", RetryChoice("rerun"), fleet.clock.now_s())
        await fleet.settle()
        assert await finish(fleet) == [0, 1, 2, 3, 4]
        assert RERUN in fleet.row("job").annotations
    with pytest.raises(UsageError, match="cannot be kept"):
        order_of({"rerun": True, "keepFinished": True})


async def test_what_is_deleted_and_applied_again_runs_again() -> None:
    async with Fleet() as fleet:
        await apply(fleet, job())
        await finish(fleet)
        await fleet.delete("BatchJob", "job")
        [change] = await apply(fleet, job())
        assert change.message == "3 tasks"
        assert await finish(fleet) == [0, 1, 2]


async def test_another_function_outdates_what_called_it() -> None:
    calling = manifest(template=CALLS, completions=2)
    async with Fleet() as fleet:
        await apply(fleet, manifest("f", "Function", env={"A": "1"}), calling)
        await finish(fleet)
        again = (manifest("f", "Function", env={"A": "1"}, maxContainers=4), calling)
        assert [it.outcome for it in changes(fleet, *again)] == ["configured", "unchanged"]
        _, change = await apply(fleet, manifest("f", "Function", env={"A": "2"}), calling)
        assert change.message == "function what it runs in changed; 2 to run again"
        assert await finish(fleet) == [0, 1]
        # Applied alone, it has its say in what is under way, and none in what is over.
        await apply(fleet, job(name="live", template={**CALLS, "python": "x"}, parallelism=1))
        fleet.local.finish(0)
        await fleet.settle()
        _, change = await apply(fleet, manifest("f", "Function", env={"A": "3"}))
        assert (change.key, change.after.generation) == ("batchjob/live", 2)
        assert await finish(fleet) == [0, 1, 2]
        assert len({run.content for run in fleet.runs("live")[-2:]}) == 1


async def test_a_branch_that_moved_runs_again_and_a_silent_remote_leaves_what_is_known() -> None:
    one, two = "1" * 40, "2" * 40
    source = {"git": {"url": "https://example.org/a", "ref": "main"}}
    wanted = job(template={**ONE, "source": source})

    def at(commit: str) -> ApplyOptions:
        return ApplyOptions(
            looked={wanted.key: SourceState(commit)}, sources=ManifestSources(Path("nowhere"))
        )

    async with Fleet() as fleet:
        fleet.engine.state.sources = ManifestSources(Path("nowhere"))
        for order in (at(one), at(two)):
            writing.apply_manifests(fleet.store, [wanted], fleet.clock.now_s(), order)
            await fleet.settle()
            assert await finish(fleet) == [0, 1, 2]
        given = [fleet.local.orders[run.name].template.source for run in fleet.runs("job")]
        assert [it.git.ref for it in given if it and it.git] == [one, two] * 3
        [silent] = propose_changes(fleet.store, [wanted], at(""), 0.0)
        assert silent.outcome == "unchanged"
        [moved] = propose_changes(fleet.store, [wanted], at(one), 0.0)
        assert moved.message == "source 2222222 -> 1111111; 3 cached"


def looked_at(
    sources: ManifestSources, wanted: Manifest, seen: dict[str, SourceState]
) -> ApplyOptions:
    return ApplyOptions(looked=sources.keep([wanted], seen), sources=sources)


async def test_two_checkouts_of_one_directory_agree(tmp_path: Path) -> None:
    sources = ManifestSources(tmp_path / "home")
    outcomes: list[str] = []
    async with Fleet() as fleet:
        for checkout in ("one", "two", "one"):
            code = tmp_path / checkout / "src"
            code.mkdir(parents=True, exist_ok=True)
            (code / "a.py").write_text("same")
            wanted = replace(job(template={**ONE, "source": {"path": "src"}}), origin=str(code))
            order = looked_at(sources, wanted, await sources.look([wanted]))
            [change] = propose_changes(fleet.store, [wanted], order, 0.0)
            store_changes(fleet.store, [change], 0.0)
            outcomes.append(change.outcome)
        assert outcomes == ["created", "unchanged", "unchanged"]


async def test_a_copy_that_is_gone_is_waited_for_with_what_helps(tmp_path: Path) -> None:
    template = Template.model_validate({**ONE, "source": {"path": "src"}})
    fields = {"fleetctl.dev/source-revision": "sha256:1", "fleetctl.dev/source-origin": "/a/src"}
    with pytest.raises(Unavailable, match="no longer in the state directory") as said:
        ManifestSources(tmp_path).pinned(template, fields)
    assert said.value.hint == "apply the manifest again"


async def test_what_is_too_large_to_compare_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.providers.sources.revision.BYTES_MAX", 3)
    (tmp_path / "a.py").write_text("large")
    wanted = replace(job(template={**ONE, "source": {"path": "."}}), origin=str(tmp_path))
    looked = await ManifestSources(tmp_path / "home").look([wanted])
    assert "an edit of it is not noticed" in looked[wanted.key].warnings[0]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ({"command": ["python", "train.py"]}, ""),
        ({"command": ["python", "./lib/run.py", "--out", "new.py"]}, ""),
        ({"command": ["python", "trian.py"]}, "`trian.py` is not among the files of source.path"),
        ({"command": ["python", "other.py"], "workdir": "/w"}, ""),
        ({"command": ["python", "/opt/other.py"]}, ""),
        ({"script": "python other.py"}, ""),
    ],
)
async def test_a_program_that_the_source_lacks_is_said(
    tmp_path: Path, template: dict[str, object], said: str
) -> None:
    (tmp_path / "lib").mkdir()
    for name in ("train.py", "lib/run.py"):
        (tmp_path / name).write_text("pass")
    wanted = replace(job(template={**template, "source": {"path": "."}}), origin=str(tmp_path))
    warning = "".join(
        (await ManifestSources(tmp_path / "home").look([wanted]))[wanted.key].warnings
    )
    assert bool(warning) == bool(said)
    assert said in warning
    assert ("did you mean `train.py`" in warning) == ("trian" in said)


def states(fleet: Fleet) -> Sequence[RunState]:
    return [run.state for run in fleet.runs("job")]


async def test_a_grid_of_new_points_alone_goes_on() -> None:
    async with Fleet() as fleet:
        for values in ([1, 2], [3, 4]):
            search = {"method": "grid", "parameters": {"x": {"values": values}}}
            await apply(fleet, manifest("sw", "Sweep", search=search, template=ONE))
            assert len(await finish(fleet)) == 2
        assert fleet.status("sw")["phase"] == "Succeeded"
