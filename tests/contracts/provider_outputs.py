"""The part of the provider suite about what runs say: results, metrics, output, sandboxes in
turn.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Alive, Ended, Gone
from fleetctl.providers.contract.base import SANDBOX_CLOSED, RunRef
from tests.contracts.provider_worlds import World, python, script, story

VALUE = "hunter2-canary-5f1c"
TELLS = """
import os, sys, time
value = os.environ["TOKEN"]
print("key", value, flush=True)
for letter in value + "\\n":
    sys.stdout.write(letter)
    sys.stdout.flush()
report(step=1, **{f"of {value}": 1.0})
"""
WRITES = """
echo "key $TOKEN"
echo "$TOKEN"
echo "{\\"key\\":\\"$TOKEN\\"}" >"$FLEETCTL_RESULT"
"""


class ProviderOutputs:
    """Mixed into ProviderSuite."""

    # Secrets

    @story
    async def test_a_task_that_tells_its_own_secret_stores_none_of_it(self, world: World) -> None:
        works = {
            "returns": python(f"{TELLS}SUBMIT(key=value, keys=[value])"),
            "raises": python(f"{TELLS}raise RuntimeError(f'cannot log in with {{value}}')"),
            "writes": script(WRITES),
        }
        for name, work in works.items():
            ref = await world.start(work, run=name, template_hash=name, secrets={"TOKEN": VALUE})
            seen = await world.ended(ref)
            log = await world.log(ref)
            assert log.startswith(b"key ***\n***\n"), name
            assert VALUE not in f"{seen}{log.decode()}", name
            if name == "raises":
                assert "cannot log in with ***" in seen.message
            else:
                assert "***" in (seen.result or "")
        kept = [it for it in world.directory.rglob("*") if it.is_file() and not it.is_symlink()]
        assert [it for it in kept if VALUE.encode() in it.read_bytes()] == []

    # Journal

    @story
    async def test_metrics_come_once_when_read_from_the_offset(self, world: World) -> None:
        code = (
            "import time\nfor step in range(5):\n    report(step=step, loss=1 / (step + 1), lr=0.1)"
        )
        ref = await world.start(python(code))
        collected, offset = [], 0
        while True:
            [seen] = await world.provider.observe([_at(ref, offset)])
            assert not isinstance(seen, Gone)
            collected += seen.metrics
            offset = seen.journal_offset
            if isinstance(seen, Ended):
                break
            await asyncio.sleep(0.01)
        assert [one.seq for one in collected] == list(range(10))
        assert [(one.step, one.name, one.value) for one in collected[2:4]] == [
            (1, "loss", 0.5),
            (1, "lr", 0.1),
        ]
        [again] = await world.provider.observe([_at(ref, offset)])
        assert isinstance(again, Ended)
        assert again.metrics == ()

    @story
    async def test_an_end_is_told_whole_from_any_offset(self, world: World) -> None:
        ref = await world.start(python("report(a=1)\nSUBMIT(x=[1, 2])"))
        first = await world.ended(ref)
        [again] = await world.provider.observe([_at(ref, first.journal_offset)])
        assert isinstance(again, Ended)
        assert (again.result, again.ok, again.started_at_s) == (
            first.result,
            True,
            first.started_at_s,
        )

    @story
    async def test_commands_hand_in_a_result_and_metrics_through_files(self, world: World) -> None:
        text = (
            """echo '{"step": 3, "loss": 0.25}' >> $FLEETCTL_METRICS; """
            """echo '{"a": [1, null]}' > $FLEETCTL_RESULT"""
        )
        seen = await world.run(script(text))
        assert seen.ok
        assert seen.result == '{"a":[1,null]}'
        assert [(one.step, one.name, one.value) for one in seen.metrics] == [(3, "loss", 0.25)]

    @story
    async def test_no_result_is_no_failure(self, world: World) -> None:
        seen = await world.run(python("x = 1"))
        assert seen.ok
        assert seen.result is None

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            pytest.param("printf '[1]'", "object", id="no-object"),
            pytest.param('printf \'{"a": "\\377"}\'', "UTF-8", id="not-utf-8"),
            pytest.param("printf '{\"a\": '", "JSON", id="torn"),
            pytest.param(
                "printf '{\"a\":%s1%s}' $(printf '[%.0s' $(seq 60)) $(printf ']%.0s' $(seq 60))",
                "deep",
                id="deep",
            ),
            pytest.param(
                "head -c 400000 /dev/zero | tr '\\0' 1 | sed 's/^/{\"a\":\"/; s/$/\"}/'",
                "volume",
                id="too-big",
            ),
        ],
    )
    def test_a_result_that_cannot_be_kept_fails_the_run(
        self, tmp_path: Path, content: str, says: str
    ) -> None:
        async def told(_: Any, world: World) -> None:
            seen = await world.run(script(f"{content} > $FLEETCTL_RESULT"))
            assert (seen.ok, seen.infrastructure) == (False, False)
            assert seen.reason == "ResultInvalid"
            assert says in seen.message
            assert seen.result is None

        story(told)(self, tmp_path)

    @story
    async def test_a_number_that_json_cannot_hold_is_null_and_said(self, world: World) -> None:
        seen = await world.run(script("""printf '{"loss": NaN}' > $FLEETCTL_RESULT"""))
        assert (seen.ok, seen.result) == (True, '{"loss":null}')
        assert "`loss` is nan" in seen.message

    @story
    async def test_fields_beside_one_that_cannot_be_kept_are_kept(self, world: World) -> None:
        code = "x = []; x.append(x)\nSUBMIT(x=x, acc=0.5, at=__import__('pathlib').Path('/a'))"
        seen = await world.run(python(code))
        assert (seen.ok, seen.infrastructure, seen.reason) == (False, False, "ResultInvalid")
        assert "field `x`: it holds itself" in seen.message
        assert seen.result == '{"acc":0.5,"at":"/a"}'

    @pytest.mark.parametrize("odd", ["ln -s $PWD/r.json", "mkdir", "mkfifo"])
    def test_a_result_file_that_is_none_is_told_in_the_log(self, tmp_path: Path, odd: str) -> None:
        async def told(_: Any, world: World) -> None:
            text = f"""echo '{{"acc": 0.9}}' > r.json; {odd} $FLEETCTL_RESULT"""
            ref = await world.start(script(text))
            seen = await world.ended(ref)
            assert (seen.ok, seen.result) == (True, None)
            assert "the result in $FLEETCTL_RESULT is a" in seen.message
            assert b"fleetctl: the result in $FLEETCTL_RESULT is a" in await world.log(ref)

        story(told)(self, tmp_path)

    @pytest.mark.parametrize("text", [r'\357\273\277{"a": "\303\251"}', r"\376\377\0{\0}"])
    def test_a_mark_of_byte_order_is_no_part_of_a_result(self, tmp_path: Path, text: str) -> None:
        async def told(_: Any, world: World) -> None:
            seen = await world.run(script(f"printf '{text}' > $FLEETCTL_RESULT"))
            assert seen.result in ('{"a":"é"}', "{}"), seen.message

        story(told)(self, tmp_path)

    @story
    async def test_a_line_of_metrics_that_is_none_is_said_at_the_end(self, world: World) -> None:
        lines = r"""printf '{"loss": 2}\nloss=1\n{"loss": 1}\n' > $FLEETCTL_METRICS"""
        seen = await world.run(script(f"{lines}; echo '{{}}' > $FLEETCTL_RESULT"))
        assert [(one.step, one.value) for one in seen.metrics] == [(0, 2.0), (2, 1.0)]
        assert "line 2 of $FLEETCTL_METRICS is not recorded: it is `loss=1`" in seen.message

    @story
    async def test_a_parameter_too_long_for_a_variable_comes_as_a_file(self, world: World) -> None:
        text = "wc -c < $TASK_TEXT_FILE; echo ${TASK_TEXT-none} $TASK_A; env true"
        params = {"text": "it's é\n" * 30_000, "a": 1}
        ref = await world.start(script(text), params=params)
        assert (await world.ended(ref)).ok
        told, size, *rest = (await world.log(ref)).decode().splitlines()
        assert "$TASK_TEXT_FILE" in told
        assert (int(size), rest) == (240_000, ["none 1"])

    @story
    async def test_more_parameters_than_a_program_may_have_come_as_files(
        self, world: World
    ) -> None:
        params = {f"p{number}": "x" * (60_000 + number) for number in range(40)}
        text = "ls ${TASK_P39_FILE%/*} | wc -l; wc -c < $TASK_P39_FILE; echo ${#TASK_P0}"
        ref = await world.start(script(text), params=params)
        assert (await world.ended(ref)).ok
        files, longest, shortest = map(int, (await world.log(ref)).split()[-3:])
        assert 20 <= files < 40
        assert (longest, shortest) == (60_039, 60_000)

    @story
    async def test_a_python_task_has_long_parameters_as_they_are(self, world: World) -> None:
        seen = await world.run(python("SUBMIT(n=len(text))"), params={"text": "x" * 200_000})
        assert seen.result == '{"n":200000}'

    # Logs

    @story
    async def test_output_is_readable_while_the_run_goes_on_and_after(self, world: World) -> None:
        ref = await world.start(script("echo one; echo two >&2; sleep 600"))
        await world.log_holds(ref, b"two")
        assert await world.log(ref, offset=4) == b"two\n"
        await world.provider.stop(ref, grace_s=0)
        await world.until(ref, lambda seen: not isinstance(seen, Alive), "stopped")
        assert await world.log(ref) == b"one\ntwo\n"

    @story
    async def test_following_output_ends_with_the_run(self, world: World) -> None:
        ref = await world.start(script("for i in 1 2 3; do echo $i; sleep 0.2; done"))
        assert await world.log(ref, follow=True) == b"1\n2\n3\n"

    @story
    async def test_the_last_chunk_of_an_ended_run_says_so(self, world: World) -> None:
        ref = await world.start(python("print('a')"))
        await world.ended(ref)
        chunks = [chunk async for chunk in world.provider.logs(ref)]
        assert chunks[-1].eof
        assert chunks[-1].next_offset == 2

    # Sandboxes

    @story
    async def test_globals_persist_between_tasks_of_one_sandbox(self, world: World) -> None:
        first = await world.start(
            python("n = globals().get('n', 0) + 1\nSUBMIT(n=n)"), reusable=True
        )
        assert (await world.ended(first)).sandbox_open
        template = python("n = globals().get('n', 0) + 1\nSUBMIT(n=n)")
        second = await world.start(template, run="run-1", sandbox="run-0", reusable=True)
        seen = await world.ended(second)
        assert (seen.result, seen.sandbox_open) == ('{"n":2}', True)
        third = await world.start(template, run="run-2", sandbox="run-0", reusable=False)
        last = await world.ended(third)
        assert (last.result, last.sandbox_open) == ('{"n":3}', False)
        assert list(await world.provider.owned()) == []

    @story
    async def test_each_task_of_a_sandbox_has_its_own_output(self, world: World) -> None:
        template = python("print('from', name)")
        first = await world.start(template, params={"name": "a"}, reusable=True)
        await world.ended(first)
        second = await world.start(
            template, run="run-1", sandbox="run-0", params={"name": "b"}, reusable=True
        )
        await world.ended(second)
        assert await world.log(first) == b"from a\n"
        assert await world.log(second) == b"from b\n"

    @story
    async def test_an_error_leaves_the_sandbox_open_and_a_death_closes_it(
        self, world: World
    ) -> None:
        template = python("import os\nif kind == 'error': 1 / 0\nif kind == 'death': os._exit(9)")
        first = await world.start(template, params={"kind": "error"}, reusable=True)
        seen = await world.ended(first)
        assert (seen.ok, seen.sandbox_open) == (False, True)
        second = await world.start(
            template, run="run-1", sandbox="run-0", params={"kind": "death"}, reusable=True
        )
        seen = await world.ended(second)
        assert (seen.ok, seen.reason, seen.sandbox_open) == (False, "ExitCode:9", False)

    @story
    async def test_a_task_for_a_closed_sandbox_ends_unbegun_through_no_fault_of_its_own(
        self, world: World
    ) -> None:
        template = python("print('begun')")
        first = await world.start(template, reusable=True)
        await world.ended(first)
        await world.provider.stop(first, grace_s=0)
        await _until_closed(world, first)
        try:
            second = await world.start(template, run="run-1", sandbox="run-0", reusable=True)
        except Unavailable as error:
            assert error.reason == SANDBOX_CLOSED
            return
        seen = await world.ended(second)
        assert (seen.ok, seen.infrastructure, seen.sandbox_open) == (False, True, False)
        assert await world.log(second) == b""

    @story
    async def test_stopping_an_idle_sandbox_closes_it(self, world: World) -> None:
        ref = await world.start(python("n = 1"), reusable=True)
        assert (await world.ended(ref)).sandbox_open
        assert [one.sandbox for one in await world.provider.owned()] == [ref.sandbox]
        await world.provider.stop(ref, grace_s=0)
        await _until_closed(world, ref)
        assert list(await world.provider.owned()) == []

    @story
    async def test_commands_of_one_sandbox_share_its_directory(self, world: World) -> None:
        template = script("cat note 2>/dev/null; echo $TASK_WORD > note")
        first = await world.start(template, params={"word": "hello"}, reusable=True)
        assert (await world.ended(first)).sandbox_open
        second = await world.start(
            template, run="run-1", sandbox="run-0", params={"word": "bye"}, reusable=False
        )
        assert not (await world.ended(second)).sandbox_open
        assert await world.log(second) == b"hello\n"


def _at(ref: RunRef, offset: int) -> RunRef:
    return RunRef(ref.run, ref.sandbox, ref.handle, offset, ref.uid)


async def _until_closed(world: World, ref: RunRef) -> None:
    await world.until(
        ref,
        lambda seen: isinstance(seen, Gone) or (isinstance(seen, Ended) and not seen.sandbox_open),
        "closed its sandbox",
    )
