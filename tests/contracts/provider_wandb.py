"""The part of the provider suite about programs that talk to wandb, without an account.

The programs write what wandb would, byte by byte: no sandbox here has the package.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fleetctl.controllers.model import Alive, WandbTrial
from fleetctl.specs.blocks.template import Template
from tests.contracts.provider_worlds import World, command, story
from tests.unit.guest import wandb_writer

WRITER = Path(wandb_writer.__file__).read_text(encoding="utf-8")
LOGGED = "write_run(os.environ['WANDB_DIR'], os.environ['WANDB_RUN_ID'], blocks([{records}]){more})"
ALONE = WandbTrial("lr", "digits", "team", only=True, metric="loss")


def program(text: str, **fields: Any) -> Template:
    """A Python program that can write the files of wandb."""
    return command("python3", "-c", f"{WRITER}\n{text}", **fields)


def logged(*records: str, more: str = "") -> str:
    return LOGGED.format(records=", ".join(records), more=more)


class ProviderWandb:
    """Mixed into ProviderSuite."""

    @story
    async def test_what_a_program_logs_in_wandb_is_a_metric_while_it_runs(
        self, world: World
    ) -> None:
        first = logged("header('0.31.0')", "history({'val/loss': 0.5, 'a': {'b': 1}}, step=4)")
        code = f"import time\n{first}\ntime.sleep(600)"
        ref = await world.start(program(code), wandb=ALONE, params={"lr": 0.5})
        seen = await world.until(
            ref, lambda seen: isinstance(seen, Alive) and bool(seen.metrics), "told its metrics"
        )
        assert isinstance(seen, Alive)
        told = {(one.step, one.name, one.value) for one in seen.metrics}
        assert told == {(4, "val/loss", 0.5), (4, "a.b", 1.0)}
        await world.provider.stop(ref, grace_s=0)
        assert not (await world.ended(ref)).ok

    @story
    async def test_all_that_was_logged_is_there_when_the_end_is_told(self, world: World) -> None:
        """Two runs of wandb in one trial, by age, and their summaries as the result."""
        later = logged(
            "history({'loss': 0.25}, step=0)",
            "summary({'loss': 0.5, 'best': 7, 'name': 'b'})",
            more=", at='20260101_000002'",
        )
        rows = "*(history({'loss': 9 - it / 1e4}, step=it) for it in range(3000))"
        earlier = logged(rows, "summary({'best': 1, 'only': 2})", more=", at='20260101_000001'")
        seen = await world.run(program(f"{later}\n{earlier}"), wandb=ALONE, params={"lr": 0.5})
        assert seen.ok
        assert [one.value for one in seen.metrics] == [9 - it / 1e4 for it in range(3000)] + [0.25]
        # What was reported has its last value; the rest is as the summaries say.
        assert json.loads(seen.result or "") == {"loss": 0.25, "best": 7, "only": 2, "name": "b"}
        assert "a block at a time" in seen.message

    @story
    async def test_a_program_finds_its_parameters_where_wandb_looks(self, world: World) -> None:
        shown = (
            "json.dump({name: text for name, text in os.environ.items() if name[:6] == 'WANDB_'}"
            " | {'file': open(os.environ['WANDB_SWEEP_PARAM_PATH']).read(),"
            " 'made': os.path.isdir(os.environ['WANDB_DIR'])},"
            " open(os.environ['FLEETCTL_RESULT'], 'w'))"
        )
        template = program(shown, env={"WANDB_PROJECT": "mine"})
        seen = await world.run(template, wandb=ALONE, params={"lr": 3e-05, "tag": "on"})
        found = json.loads(seen.result or "")
        assert found["file"] == (
            'wandb_version: 1\n"lr": {"value": 3.0e-05}\n"tag": {"value": "on"}\n'
        )
        assert found["made"]
        names = ("MODE", "SWEEP_ID", "PROJECT", "ENTITY", "RUN_ID", "SILENT")
        assert [found[f"WANDB_{name}"] for name in names] == [
            *("offline", "lr", "mine", "team", seen.run, "true")
        ]

    @story
    async def test_who_wants_w_and_b_itself_is_told_the_parameters_alone(
        self, world: World
    ) -> None:
        shown = (
            "names = sorted(name for name in os.environ if name[:6] == 'WANDB_')\n"
            "json.dump({'names': names}, open(os.environ['FLEETCTL_RESULT'], 'w'))"
        )
        for number, more in enumerate(
            ({"secrets": {"WANDB_API_KEY": "k" * 40}}, {"env": {"WANDB_MODE": "online"}})
        ):
            template = program(shown, env=more.get("env", {}))
            seen = await world.run(
                template,
                run=f"run-{number}",
                wandb=ALONE,
                params={"lr": 1},
                secrets=more.get("secrets", {}),
                template_hash=f"hash-{number}",
            )
            own = "WANDB_API_KEY" if number == 0 else "WANDB_MODE"
            found = json.loads(seen.result or "")["names"]
            assert found == sorted([own, "WANDB_SWEEP_PARAM_PATH"])

    @story
    async def test_trials_of_one_sandbox_are_kept_apart(self, world: World) -> None:
        logs = logged("header('0.31.0')", "history({'x': 1})")
        template = program(f"if os.environ['TASK_LOGS'] == 'yes': {logs}")
        first = await world.start(template, wandb=ALONE, params={"logs": "yes"}, reusable=True)
        seen = await world.ended(first)
        assert [(one.name, one.value) for one in seen.metrics] == [("x", 1.0)]
        second = await world.start(
            template, run="run-1", sandbox="run-0", wandb=ALONE, params={"logs": "no"}
        )
        seen = await world.ended(second)
        assert (seen.metrics, seen.reason) == ((), "ParametersUnread")

    @story
    async def test_a_trial_that_nothing_told_its_parameters_has_failed(self, world: World) -> None:
        seen = await world.run(command("true"), wandb=ALONE, params={"lr": 0.5})
        assert (seen.ok, seen.infrastructure, seen.reason) == (False, False, "ParametersUnread")
        assert "ran with its own defaults" in seen.message

    @story
    async def test_a_trial_that_may_know_its_parameters_has_not_failed(self, world: World) -> None:
        handed_over = WandbTrial("lr", "", "", only=False)
        fields = {
            "arguments": (command("true"), handed_over),
            "file": (program("open(os.environ['FLEETCTL_PARAMS']).read()"), ALONE),
            "wandb": (program(logged("header('0.31.0')")), ALONE),
            "report": (
                program("""open(os.environ['FLEETCTL_METRICS'], 'w').write('{"x": 1}\\n')"""),
                ALONE,
            ),
        }
        for number, (template, trial) in enumerate(fields.values()):
            seen = await world.run(
                template,
                run=f"run-{number}",
                wandb=trial,
                params={"lr": 0.5},
                template_hash=f"hash-{number}",
            )
            assert (seen.ok, seen.reason) == (True, "Completed"), list(fields)[number]
