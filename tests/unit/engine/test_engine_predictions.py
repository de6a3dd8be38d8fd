"""What is known to be refused, or to wait without end, is told before anything is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Conflict
from fleetctl.common.finding import Finding
from fleetctl.common.install import install_hint
from fleetctl.controllers.wandb import SweepLocation
from fleetctl.engine.kinds.wandb.sweep_link import SweepLink, store_link
from fleetctl.manifest.problems import ManifestProblem, format_problems
from fleetctl.providers.contract.account import Account
from fleetctl.providers.modal.modal_check import refuse_endpoint
from fleetctl.specs.blocks.template import Template
from tests.unit.engine.test_engine_api import Served, served

HEAD = "apiVersion: fleetctl.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
SECRET = HEAD.format(kind="Secret", name="keys") + "spec: {fromEnv: [PREDICTED_KEY]}\n"


def job(template: str, *, name: str = "job", rest: str = "") -> str:
    return HEAD.format(kind="BatchJob", name=name) + f"spec:\n  template: {template}\n{rest}"


async def refused(api: Served, *texts: str, **fields: Any) -> str:
    """The errors of an apply that stored nothing."""
    before = api.fleet.names()
    reply = await api.apply(*texts, **fields)
    assert (reply["ok"], reply.get("code")) == (False, 2), reply
    assert api.fleet.names() == before
    return format_problems([ManifestProblem.of_document(it) for it in reply["findings"]])


NEEDS = job("{script: x, secrets: [keys]}")


async def test_a_secret_that_is_not_there_refuses_the_apply_with_its_place(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        reply = await refused(api, NEEDS)
        assert reply.startswith(
            "f.yaml:5:35: spec.template.secrets[0] is `keys`, and there is no Secret of that name"
        )
        assert "`--allow-missing` stores it all the same" in reply


async def test_a_file_that_holds_both_is_right(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        reply = await api.apply(f"{NEEDS}---\n{SECRET}", env={"PREDICTED_KEY": "v"})
        assert reply["ok"], reply
        assert sorted(api.fleet.names()) == ["job", "keys"]


async def test_what_may_come_later_is_stored_where_a_person_said_so(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        reply = await api.apply(NEEDS, allowMissing=True)
        assert reply["ok"]
        (warning,) = reply["warnings"]
        assert "there is no Secret of that name" in warning
        # It is there: an apply of the same says nothing new about it.
        assert (await api.apply(NEEDS))["results"][0]["outcome"] == "unchanged"


async def test_a_name_that_is_nearly_right_is_proposed(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(SECRET, env={"PREDICTED_KEY": "v"})
        reply = await refused(api, job("{script: x, secrets: [key]}"))
        assert "did you mean `keys`?" in reply


async def test_a_variable_that_nobody_has_refuses_its_secret(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        assert (await api.apply(SECRET))["needEnv"] == ["PREDICTED_KEY"]
        reply = await refused(api, SECRET, env={})
        assert reply.startswith("f.yaml:4:18: spec.fromEnv[0] is `PREDICTED_KEY`, which is not set")


async def test_a_controller_that_lost_a_variable_asks_for_it_again(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(SECRET, env={"PREDICTED_KEY": "v"})
        api.secrets._learnt.clear()  # as after a restart in another shell
        assert (await api.apply(NEEDS))["needEnv"] == ["PREDICTED_KEY"]
        assert (await api.apply(NEEDS, env={"PREDICTED_KEY": "v"}))["ok"]


@pytest.mark.parametrize(
    ("template", "rest", "told"),
    [
        ("{script: x, function: fn}", "", "spec.template.function is `fn`, and there is no Funct"),
        ("{script: x}", "  placement: {provider: locl}\n", "hint: did you mean `local`? there is"),
        (
            "{script: x}",
            "  placement: {maxPricePerHour: 1}\n",
            "spec.placement.provider is `local`: $36.00/h is above its maxPricePerHour of $1.00/h",
        ),
        (
            "{script: x}",
            "  placement: {ordered: [{provider: local, maxPricePerHour: 1}, {provider: mars}]}\n",
            "no provider can run this: `local`: $36.00/h is above its maxPricePerHour of $1.00/h",
        ),
    ],
)
async def test_what_no_place_can_run_is_refused(
    tmp_path: Path, template: str, rest: str, told: str
) -> None:
    async with served(tmp_path) as api:
        api.fleet.local.price = 0.01
        assert told in await refused(api, job(template, rest=rest))


async def test_a_place_that_is_not_there_is_told_beside_mistakes_of_other_manifests(
    tmp_path: Path,
) -> None:
    """Not so what the wrong ones may have been meant to be."""
    wrong = HEAD.format(kind="Provider", name="mine") + "spec: {typ: local}\n"
    lost = job("{script: x}", name="lost", rest="  placement: {provider: modl}\n")
    meant = job("{script: x, secrets: [k]}", name="own", rest="  placement: {provider: mine}\n")
    async with served(tmp_path) as api:
        found = (await refused(api, "---\n".join((wrong, lost, meant)))).splitlines()
        told = [it for it in found if "hint" not in it]
        assert [any(w in it for it in told) for w in ("spec.typ", "`modl`")] == [True, True]
        assert not any("`mine`" in it for it in told)


async def test_one_wrong_name_among_places_is_a_warning(tmp_path: Path) -> None:
    rest = "  placement: {ordered: [{provider: local}, {provider: mars}]}\n"
    async with served(tmp_path) as api:
        (warning,) = (await api.apply(job("{script: x}", rest=rest)))["warnings"]
        assert "spec.placement.ordered[1].provider is `mars`" in warning


@pytest.mark.parametrize(("reach", "stored"), [("Gateway", False), ("Direct", True)])
async def test_who_asks_an_endpoint_directly_needs_nobody_to_carry_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reach: str, stored: bool
) -> None:
    async def foresee(_: object, template: Template, account: Account) -> AsyncIterator[Finding]:
        del account
        for endpoint in template.endpoints:
            yield refuse_endpoint(endpoint)

    endpoint = HEAD.format(kind="Endpoint", name="small")
    endpoint += f"spec: {{servers: [{{url: 'http://a'}}], reach: {reach}}}\n"
    async with served(tmp_path) as api:
        monkeypatch.setattr(type(api.fleet.local), "foresee", foresee, raising=False)
        reply = await api.apply(f"{endpoint}---\n{job('{script: x, endpoints: [small]}')}")
        assert reply["ok"] is stored, reply
        assert stored or "cannot ask endpoint `small`" in reply["errors"][0]


async def test_a_field_that_is_set_is_looked_at_in_the_same_way(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(job("{script: x}"))
        before = api.fleet.row("job").spec
        fields = ['template.secrets=["keys"]']
        reply = await api.ask("set", key="batchjob/job", fields=fields, yes=True)
        assert (reply["ok"], reply["code"]) == (False, 2)
        assert "there is no Secret of that name" in reply["errors"][0]
        assert "--allow-missing" not in reply["errors"][0]  # which `set` does not have
        assert api.fleet.row("job").spec == before


def many(count: int, rest: str = "") -> str:
    """Of a job that starts nothing."""
    return job("{script: x}", rest=f"  completions: {count}\n  parallelism: 0\n{rest}")


async def test_far_more_tasks_than_anybody_means_are_asked_about_once(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        reply = await api.apply(many(10**9))
        assert (reply["code"], reply["errors"]) == (
            3,
            ["batchjob/job: 1,000,000,000 tasks would run, more than 1,000,000"],
        )
        assert api.fleet.names() == []
        assert (await api.apply(many(10**9), yes=True))["ok"]
        assert (await api.apply(many(10**9, "  backoffLimit: 1\n")))["ok"]
        assert (await api.apply(many(2 * 10**9)))["code"] == 3


async def test_data_that_stays_behind_is_asked_about(tmp_path: Path) -> None:
    volume = HEAD.format(kind="Volume", name="data") + "spec: "
    async with served(tmp_path) as api:
        assert (await api.apply(volume + "{provider: local}"))["ok"]
        reply = await api.apply(volume + "{provider: modal}")
        assert reply["code"] == 3
        assert reply["errors"][0].startswith(
            "volume/data: its data stays on `local`, nothing of it is copied to `modal`"
        )
        assert (await api.apply(volume + "{provider: modal}", yes=True))["ok"]


async def test_a_bayes_search_without_numpy_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.apply.predictions.missing_objects.find_spec", lambda name: None)
    search = "{method: bayes, run_cap: 3, metric: {name: loss}, parameters: {x: {min: 0, max: 9}}}"
    text = HEAD.format(kind="Sweep", name="by")
    text += f"spec: {{template: {{script: x}}, parallelism: 0, search: {search}}}"
    async with served(tmp_path) as api:
        reply = await refused(api, text)
        assert (
            "spec.search.method is `bayes`, which needs numpy, and that is not installed" in reply
        )
        assert install_hint("bayes") in reply
        assert api.fleet.names() == []
        tpe = text.replace("bayes,", "bayes, sampler: {name: tpe},")
        reply = await refused(api, tpe)
        assert "spec.search.sampler.name is `tpe`, which needs optuna, and that is not" in reply
        assert install_hint("optuna") in reply
        monkeypatch.undo()
        assert (await api.apply(text))["ok"]
        assert (await api.apply(tpe, yes=True))["ok"]


WINNER = HEAD.format(kind="TrainingRun", name="full") + (
    "spec:\n  paramsFrom: {sweep: x}\n  template: {script: train}\n"
)
SEARCH = HEAD.format(kind="Sweep", name="x") + (
    "spec:\n  search: {method: grid, parameters: {lr: {values: [1]}}}\n  template: {script: x}\n"
)
METRIC = SEARCH.replace("search: {", "search: {metric: {name: loss}, ")


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ("", "is `x`, and there is no Sweep of that name"),
        (SEARCH, "is `x`, which has no `metric`, so none of its trials is the best"),
        (METRIC.replace("lr", "stage"), "searches `stage`, and that names a stage here"),
    ],
)
async def test_a_sweep_that_gives_no_parameters_is_told(
    tmp_path: Path, sweep: str, said: str
) -> None:
    async with served(tmp_path) as api:
        reply = await refused(api, f"{sweep}---\n{WINNER}" if sweep else WINNER)
        assert "spec.paramsFrom.sweep " in reply and said in reply


async def test_a_parameter_of_a_sweep_that_is_the_variable_of_a_tasks_own_is_told(
    tmp_path: Path,
) -> None:
    job = HEAD.format(kind="BatchJob", name="full") + (
        "spec:\n  paramsFrom: {sweep: x}\n  template: {script: train}\n"
        "  tasks: {items: [{l_r: 1}]}\n"
    )
    async with served(tmp_path) as api:
        reply = await refused(api, f"{METRIC.replace('lr', 'l-r')}---\n{job}")
        assert "is `x`, whose `l-r` is the variable `TASK_L_R`, and so is `l_r`" in reply


def warmed(name: str, by: str) -> str:
    search = (
        "{method: bayes, run_cap: 3, metric: {name: loss}, parameters: {x: {min: 0, max: 9}},"
        f" priorTrials: {{fromSweep: {by}}}}}"
    )
    return HEAD.format(kind="Sweep", name=name) + (
        f"spec: {{template: {{script: x}}, parallelism: 0, search: {search}}}\n"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (warmed("a", "a"), "is `a`; sweep/a waits for its own trials, so none of them begins"),
        (
            f"{warmed('a', 'b')}---\n{warmed('b', 'a')}",
            "is `b`; sweep/a and sweep/b wait for each other's trials, so none of them begins",
        ),
        (f"{SEARCH}---\n{warmed('a', 'x')}", "`x`, which has no `metric`, and this search follows"),
        (
            f"{METRIC.replace('loss', 'acc')}---\n{warmed('a', 'x')}",
            "is `x`, which follows `acc`, and this search `loss`",
        ),
    ],
)
async def test_trials_that_never_warm_a_search_are_told(
    tmp_path: Path, text: str, said: str
) -> None:
    async with served(tmp_path) as api:
        reply = await refused(api, text, allowMissing=True)
        assert "spec.search.priorTrials.fromSweep " in reply and said in reply


async def test_a_sweep_to_be_warmed_by_may_come_later(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(METRIC)
        reply = await api.apply(warmed("a", "xx"))
        assert reply["ok"], reply
        (warning,) = reply["warnings"]
        assert "is `xx`, and there is no Sweep of that name" in warning


async def test_what_a_stage_says_for_itself_is_refused_at_its_own_place(tmp_path: Path) -> None:
    head = HEAD.format(kind="TrainingRun", name="t")
    spec = "spec:\n  nodes: 2\n  template: {script: x}\n  stages:\n"
    async with served(tmp_path) as api:
        stages = "  - {name: a, nodes: 1, secrets: [keys]}\n  - {name: b}\n"
        reply = await refused(api, head + spec + stages)
        assert "spec.stages[0].secrets[0] is `keys`, and there is no Secret" in reply
        assert "gives an attempt one machine, and `nodes` is 2" in reply
        elsewhere = (
            "  - {name: a, nodes: 1}\n  - {name: b, nodes: 1, placement: {provider: lokal}}\n"
        )
        reply = await refused(api, head + spec + elsewhere)
        assert "spec.stages[1].placement.provider is `lokal`" in reply


def at_wandb(values: str, secrets: str = "[keys]") -> str:
    search = f"{{method: grid, parameters: {{lr: {{values: {values}}}}}, program: train.py}}"
    spec = f"  backend: wandb\n  search: {search}\n  template: {{secrets: {secrets}}}\n"
    return HEAD.format(kind="Sweep", name="lr") + f"spec:\n{spec}"


async def test_a_sweep_at_wandb_without_its_key_is_told(tmp_path: Path) -> None:
    secret = HEAD.format(kind="Secret", name="keys") + "spec: {from%s}\n"
    kept = secret % "Provider: wandb-secret"
    async with served(tmp_path) as api:
        for said in (at_wandb("[1, 2]", "[]"), f"{kept}---\n{at_wandb('[1, 2]')}"):
            answer = await refused(api, said)
            assert "spec.backend is `wandb`, which needs WANDB_API_KEY" in answer
            assert "fromEnv: [WANDB_API_KEY]" in answer
        ours = secret % "Env: [WANDB_API_KEY]"
        reply = await api.apply(f"{ours}---\n{at_wandb('[1, 2]')}", env={"WANDB_API_KEY": "k"})
        assert reply["ok"], reply


async def test_what_wandb_has_of_a_sweep_does_not_change_and_is_not_run_again(
    tmp_path: Path,
) -> None:
    secret = HEAD.format(kind="Secret", name="keys") + "spec: {fromEnv: [WANDB_API_KEY]}\n"
    async with served(tmp_path) as api:
        await api.apply(f"{secret}---\n{at_wandb('[1]')}", env={"WANDB_API_KEY": "k"})
        # While W&B has made none, as when it refuses the search, that may be mended.
        await api.apply(at_wandb("[1, 2]"), env={"WANDB_API_KEY": "k"})
        row = api.fleet.store.resources.get("Sweep", "lr")
        store_link(
            api.fleet.store,
            row.uid,
            SweepLink(home=SweepLocation("abc", "k", "acme", "p", "url", made=True)),
        )
        for text, more, word in (
            (at_wandb("[1, 2, 3]"), {}, "never changes"),
            (at_wandb("[1, 2]").replace("  backend: wandb\n", ""), {}, "never changes"),
            (at_wandb("[1, 2]"), {"rerun": True}, "is not run again"),
        ):
            reply = await api.apply(text, env={"WANDB_API_KEY": "k"}, **more)
            assert (reply["ok"], reply["code"]) == (False, Conflict.exit_code)
            assert word in str(reply)
        # What its trials run is this side's alone.
        again = at_wandb("[1, 2]").replace("train.py", "better.py")
        reply = await api.apply(again, env={"WANDB_API_KEY": "k"})
        assert reply["results"][0]["outcome"] == "configured"


def chained(name: str, on: str, rest: str = "") -> str:
    return job("{script: x}", name=name, rest=f"  dependsOn: [{{job: {on}}}]\n{rest}")


async def test_a_circle_of_dependencies_is_refused_with_its_path(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        reply = await refused(api, f"{chained('a', 'c')}---\n{chained('b', 'a')}---\n"
                              f"{chained('c', 'b')}")  # fmt: skip
        assert reply.count("makes a cycle") == 1
        path = "batchjob/a -> batchjob/c -> batchjob/b -> batchjob/a"
        assert f"f.yaml:6:21: spec.dependsOn[0].job makes a cycle: {path}" in reply
        assert "batchjob/a -> batchjob/a;" in await refused(api, chained("a", "a"))


async def test_a_circle_of_an_object_that_is_declared_twice_is_found_once(tmp_path: Path) -> None:
    twice = f"{job('{script: x}', name='a')}---\n{chained('a', 'a')}"
    async with served(tmp_path) as api:
        reply = await refused(api, twice)
        assert "batchjob/a is declared twice" in reply
        assert reply.count("makes a cycle: batchjob/a -> batchjob/a;") == 1


async def test_a_circle_that_the_store_closes_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        reply = await api.apply(chained("a", "b"))
        (warning,) = reply["warnings"]
        assert "spec.dependsOn[0].job is `b`, and there is no BatchJob of that name" in warning
        taking = job("{script: x}", name="b", rest="  tasks: {fromResults: {job: a}}\n")
        assert "spec.tasks.fromResults makes a cycle: batchjob/b -> batchjob/a" in await refused(
            api, taking
        )


async def test_a_queue_that_is_not_there_is_warned_of_before_work_waits_in_it(
    tmp_path: Path,
) -> None:
    waiting = job("{script: x}", rest="  queue: lab\n").replace(
        "name: job", "name: job, namespace: a"
    )
    lab = HEAD.format(kind="Queue", name="lab") + "spec: {quotas: [{nominal: 1}]}\n"
    async with served(tmp_path) as api:
        (warning,) = (await api.apply(waiting))["warnings"]
        assert "spec.queue is `lab`, and there is no Queue of that name" in warning
        reply = await api.apply(f"{waiting.replace('name: job', 'name: other')}---\n{lab}")
        assert not reply.get("warnings")


async def test_a_condition_on_results_that_is_none_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        rest = "  tasks: {fromResults: {job: a, where: stat = 3}}\n"
        reply = await refused(api, job("{script: x}", rest=rest))
        assert "spec.tasks.fromResults.where: the condition is wrong: no such column: stat" in reply


async def test_who_waits_for_what_is_deleted_is_told(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.apply(f"{chained('y', 'x')}---\n{job('{script: x}', name='x')}")
        await api.fleet.settle()
        reply = await api.ask(verb="delete", keys=["batchjob/x"])
        (result,) = reply["results"]
        assert result["message"] == "batchjob/y waits for it until it is applied again"
