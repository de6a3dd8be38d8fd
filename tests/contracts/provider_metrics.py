"""The part of the provider suite about programs that print or write their metrics, and know nothing
of us.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetctl.controllers.model import Alive
from fleetctl.specs.blocks.template import Template
from tests.contracts.provider_worlds import World, command, story
from tests.unit.guest.metrics import event_writer

WRITER = Path(event_writer.__file__).read_text(encoding="utf-8")


def program(text: str, **metrics: str) -> Template:
    """A Python program; metrics: what follows it."""
    return command("python3", "-c", text, metrics={"from": metrics.pop("form"), **metrics})


def told(seen: Any) -> list[tuple[int, str, float]]:
    return [(one.step, one.name, one.value) for one in seen.metrics]


class ProviderMetrics:
    """Mixed into ProviderSuite."""

    @story
    async def test_what_a_program_prints_is_a_metric_while_it_runs(self, world: World) -> None:
        code = "import time\nprint('epoch 3: loss 0.5', flush=True)\ntime.sleep(600)"
        regex = r"epoch (?P<step>\d+): loss (?P<loss>\S+)"
        ref = await world.start(program(code, form="stdout", regex=regex))
        seen = await world.until(
            ref, lambda seen: isinstance(seen, Alive) and bool(seen.metrics), "told its metrics"
        )
        assert told(seen) == [(3, "loss", 0.5)]
        await world.provider.stop(ref, grace_s=0)
        assert not (await world.ended(ref)).ok

    @story
    async def test_the_last_that_is_printed_is_there_when_the_end_is_told(
        self, world: World
    ) -> None:
        code = "print('loss=1\\nloss=?\\nloss=0.25', end='')"
        seen = await world.run(program(code, form="stdout", regex=r"loss=(?P<loss>\S+)"))
        assert (seen.ok, told(seen)) == (True, [(0, "loss", 1), (1, "loss", 0.25)])
        (remark,) = seen.remarks
        assert remark.startswith("line 2 of what it printed, `loss=?`: `loss` is `?`, which is no")

    @story
    async def test_more_than_a_look_holds_is_there_when_the_end_is_told(self, world: World) -> None:
        """Of what is reported at once, 1.3 MB here, nothing is left behind."""
        code = (
            "import os, json\nlines = (json.dumps({'step': it, 'x' * 200: it}) for it in"
            " range(6000))\nwith open(os.environ['FLEETCTL_METRICS'], 'w') as file:\n"
            " file.writelines(f'{it}\\n' for it in lines)"
        )
        ref = await world.start(command("python3", "-c", code))
        assert await world.log(ref, follow=True) == b""  # which ends, although nobody takes it in
        seen = await world.ended(ref)
        assert seen.ok and [one.step for one in seen.metrics] == list(range(6000))

    @story
    async def test_lines_of_json_are_read_from_where_the_program_begins(self, world: World) -> None:
        code = """open('m.jsonl', 'w').write('{"step": 7, "val/loss": 0.5}\\nloss: 1\\n{"a": 2}')"""
        seen = await world.run(program(code, form="jsonl", path="m.jsonl"))
        assert (seen.ok, told(seen)) == (True, [(7, "val/loss", 0.5), (2, "a", 2)])
        (remark,) = seen.remarks
        assert remark.startswith("line 2 of `m.jsonl` is not recorded: `loss: 1`")

    @story
    async def test_event_files_of_tensorboard_are_read(self, world: World) -> None:
        code = (
            f"{WRITER}\nwrite_events('runs/train', event(7, simple('loss', 0.5)),"
            " event(8, tensor('loss', 0.25)), event(9)[:-1] + b'?')"
        )
        seen = await world.run(program(code, form="tensorboard", path="runs"))
        assert told(seen) == [(7, "train/loss", 0.5), (8, "train/loss", 0.25)]
        assert (seen.ok, seen.remarks) == (True, ())

    @story
    async def test_a_python_task_prints_its_metrics_too_and_the_next_one_its_own(
        self, world: World
    ) -> None:
        """In one warm worker; nothing of the first task is told of the second."""
        asked = {"from": "stdout", "regex": r"loss=(?P<loss>\S+)"}
        template = Template.model_validate({"python": "print(f'loss={x}')", "metrics": asked})
        first = await world.start(template, params={"x": 1}, reusable=True)
        assert told(await world.ended(first)) == [(0, "loss", 1)]
        second = await world.start(template, run="run-1", sandbox="run-0", params={"x": 2})
        assert told(await world.ended(second)) == [(0, "loss", 2)]

    @story
    async def test_an_expression_that_tries_for_ever_holds_nothing_up(self, world: World) -> None:
        """Not the lines after it, nor a time limit, nor a stop."""
        regex = r"(?P<loss>(a+)+)$|loss=(?P<other>\S+)"
        begin = "import time\nprint('a' * 60 + '!', 'loss=0.5', sep='\\n', flush=True)\n"
        seen = await world.run(program(begin, form="stdout", regex=regex))
        assert (seen.ok, told(seen)) == (True, [(0, "other", 0.5)])
        (remark,) = seen.remarks
        assert remark.startswith(f"line 1 of what it printed, `{'a' * 60}…`, is not looked at")
        lasting = program(begin + "time.sleep(600)", form="stdout", regex=regex)
        limited = lasting.model_copy(update={"timeout_seconds": 2})
        ref = await world.start(limited, run="run-1")
        assert (await world.ended(ref)).reason == "Timeout"
        ref = await world.start(lasting, run="run-2")
        await world.until(
            ref, lambda seen: isinstance(seen, Alive) and bool(seen.metrics), "told its metrics"
        )
        await world.provider.stop(ref, grace_s=0)
        assert not (await world.ended(ref)).ok
