"""What every provider must make of odd answers of its service: whose fault each tells, and that one
decides nothing. A provider with a service adds this to its suite; its world says how to `spoil`.

Questions are `create`, `look` (at one sandbox), `end` and `any`. Answers are `key` (the service
does not know us), `page` (of a gateway before it), `unknown` (its own, in WORDS that nobody knows),
`broken` (it failed) and `gone` (its own word that there is no such sandbox).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import Alive, Gone
from fleetctl.providers.contract.base import Reachable, Resolving, RunRef
from tests.contracts.provider_worlds import World, eventually, python, story

WORDS = "the quick brown fox cannot be scheduled on a Tuesday"
WAITS = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
LOOKS = 5  # that an odd answer is met at, at the least


class SpoiltWorld(World):
    """A world whose service can be made to answer oddly."""

    def spoil(self, question: str, answer: str) -> None:
        """Every such question is answered so, until `mend`."""
        raise NotImplementedError

    def mend(self) -> None:
        raise NotImplementedError

    def asked(self) -> int:
        """How many questions were answered oddly since `spoil`."""
        raise NotImplementedError

    def cut(self, ref: RunRef) -> None:
        """End all streams of the run's sandbox without a goodbye; it works on."""
        raise NotImplementedError

    def living(self) -> int:
        """Sandboxes of this world's store that are there, by the service's own truth."""
        raise NotImplementedError


async def cut_off(world: SpoiltWorld, ref: RunRef) -> None:
    """Its streams end, one of them perhaps in the midst of being opened, until that is asked of."""

    async def asked() -> bool:
        if not world.asked():
            world.cut(ref)
        return world.asked() > 0

    await eventually(asked, f"somebody asked what became of {ref.run}")


async def answered(world: SpoiltWorld, times: int) -> None:
    async def met() -> bool:
        return world.asked() >= times

    await eventually(met, f"an odd answer was met {times} times")


class ProviderAnswers:
    """Mixed into a provider's suite beside ProviderSuite."""

    @story
    async def test_an_answer_about_the_account_begins_nothing_and_tells_the_fix(
        self, world: SpoiltWorld
    ) -> None:
        await world.run(python("pass"))  # it is connected, and knows its image
        order = world.order(python("print('once', flush=True)"), run="run-1")
        world.spoil("create", "key")
        with pytest.raises(Unavailable) as told:
            await world.begin(order)
        assert told.value.account
        assert told.value.hint
        assert told.value.reason not in ("Unavailable", "UnknownAnswer")
        world.mend()
        ref = await world.begin(order)
        await world.ended(ref)
        assert await world.log(ref) == b"once\n"

    @pytest.mark.parametrize("answer", ["page", "unknown", "broken"])
    def test_what_nobody_understands_is_no_refusal_and_no_word_about_the_account(
        self, tmp_path: Path, answer: str
    ) -> None:
        async def told(_: object, world: SpoiltWorld) -> None:
            await world.run(python("pass"))
            order = world.order(python("print('once', flush=True)"), run="run-1")
            world.spoil("create", answer)
            with pytest.raises(Unavailable) as caught:
                await world.begin(order)
            assert not caught.value.account
            assert "in time" not in str(caught.value)
            assert "<html" not in str(caught.value).lower()
            if answer == "unknown":
                assert caught.value.reason == "UnknownAnswer"
                assert WORDS in str(caught.value)
            world.mend()
            ref = await world.begin(order)
            await world.ended(ref)
            assert await world.log(ref) == b"once\n"

        story(told)(self, tmp_path)

    @pytest.mark.parametrize("answer", ["page", "key", "unknown", "broken"])
    def test_an_odd_answer_to_a_look_loses_nothing(self, tmp_path: Path, answer: str) -> None:
        async def told(_: object, world: SpoiltWorld) -> None:
            ref = await world.start(python(WAITS))
            await world.log_holds(ref, b"begun")
            world.spoil("look", answer)
            await cut_off(world, ref)
            while world.asked() < LOOKS:
                assert not isinstance(await world.see(ref), Gone)
                await answered(world, world.asked() + 1)
            world.mend()
            assert isinstance(await world.see(ref), Alive)
            assert world.living() == 1

        story(told)(self, tmp_path)

    @story
    async def test_gone_is_an_answer_to_the_question_and_not_a_memory(
        self, world: SpoiltWorld
    ) -> None:
        ref = await world.start(python(WAITS))
        await world.log_holds(ref, b"begun")
        world.spoil("look", "gone")
        await cut_off(world, ref)
        await world.until(ref, lambda seen: isinstance(seen, Gone), "was said to be gone")
        world.mend()
        await world.alive(ref)
        assert world.living() == 1

    @story
    async def test_what_is_said_to_be_gone_is_ended_by_its_id(self, world: SpoiltWorld) -> None:
        ref = await world.start(python(WAITS))
        await world.log_holds(ref, b"begun")
        world.spoil("look", "gone")
        await cut_off(world, ref)
        await world.until(ref, lambda seen: isinstance(seen, Gone), "was said to be gone")
        await world.provider.stop(ref, grace_s=0)
        await none_lives(world)

    @story
    async def test_a_sandbox_that_is_listed_is_ended_whatever_was_concluded_of_it(
        self, world: SpoiltWorld
    ) -> None:
        ref = await world.start(python(WAITS))
        await world.log_holds(ref, b"begun")
        world.spoil("look", "gone")
        world.spoil("end", "gone")
        await cut_off(world, ref)
        await world.until(ref, lambda seen: isinstance(seen, Gone), "was said to be gone")
        await world.provider.stop(ref, grace_s=0)
        await resolved(world)
        world.mend()
        assert world.living() == 1
        listed = RunRef(ref.sandbox, ref.sandbox, ref.handle, 0, "")
        await world.provider.stop(listed, grace_s=0)
        await none_lives(world)

    @story
    async def test_a_stop_that_cannot_be_carried_out_says_why(self, world: SpoiltWorld) -> None:
        ref = await world.start(python(WAITS))
        await world.log_holds(ref, b"begun")
        world.spoil("end", "key")
        await world.provider.stop(ref, grace_s=0)
        seen = await world.until(
            ref, lambda seen: isinstance(seen, Alive) and bool(seen.held), "said why it is there"
        )
        assert isinstance(seen, Alive)
        assert "key" in seen.held.text or "token" in seen.held.text
        assert isinstance(world.provider, Resolving)
        assert world.provider.unresolved()
        world.mend()
        await none_lives(world)
        await resolved(world)

    @story
    async def test_whether_the_service_serves_us_can_be_asked(self, world: SpoiltWorld) -> None:
        await world.run(python("pass"))
        assert isinstance(world.provider, Reachable)
        await world.provider.reach()
        world.spoil("any", "key")
        with pytest.raises(Unavailable) as told:
            await world.provider.reach()
        assert told.value.account
        world.mend()
        world.spoil("any", "broken")
        with pytest.raises(Unavailable) as told:
            await world.provider.reach()
        assert not told.value.account
        world.mend()
        await world.provider.reach()

    @story
    async def test_no_odd_answer_is_a_refusal(self, world: SpoiltWorld) -> None:
        for at, answer in enumerate(("key", "page", "unknown", "broken")):
            world.spoil("any", answer)
            try:
                await world.provider.start(world.order(run=f"run-{at}"))
            except Refused as refused:
                raise AssertionError(f"{answer}: {refused}") from refused
            except Unavailable:
                pass
            world.mend()


async def none_lives(world: SpoiltWorld) -> None:
    async def gone() -> bool:
        return world.living() == 0

    await eventually(gone, "no sandbox was left")


async def resolved(world: SpoiltWorld) -> None:
    async def done() -> bool:
        return not isinstance(world.provider, Resolving) or not world.provider.unresolved()

    await eventually(done, "nothing was open any more")
