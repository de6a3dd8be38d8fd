"""What a person is told before an apply is what the next passes do, in any life of an object."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.controllers.model import RunState
from fleetctl.controllers.planning.plan import Start, Stop
from fleetctl.controllers.reuse.impact import estimate_impact
from tests.properties.test_controllers_lives import TEMPLATES, events, fields, items, live_through
from tests.unit.controllers.play import LOCAL, Play

# No limit on failures, no deadline and no suspension: what stops all is told by other words.
plain = st.fixed_dictionaries(
    {"parallelism": st.sampled_from([None, 3, 2, 1, 6])},
    optional={
        "rollout": st.sampled_from(["Replace", "FinishRunning"]),
        "template": st.sampled_from(TEMPLATES),
    },
)
counts = st.sampled_from([5, 8, 3, 1])
END_ALL = ("activeDeadlineSeconds", "suspend", "failurePolicy", "successPolicy", "backoffLimit")


def changed(play: Play, desired: dict[str, Any], tasks: list[int] | int) -> None:
    """A new generation that nothing ends early."""
    never = dict.fromkeys((*END_ALL, "maxFailedIndexes"))
    how_many: dict[str, Any] = {"tasks": None, "completions": tasks}
    if isinstance(tasks, list):
        how_many = {"tasks": {"items": [{"x": x} for x in tasks]}, "completions": None}
    play.change(**never, **how_many, **desired)


@given(fields, events, plain, counts | items)
@settings(max_examples=70)
def test_what_would_be_stopped_and_run_is_what_the_passes_stop_and_run(
    spec: dict[str, Any], lived: Any, desired: dict[str, Any], tasks: Any
) -> None:
    play = live_through(spec, lived)
    changed(play, desired, tasks)
    told = estimate_impact(play.controller, play.history, parallelism=sum(LOCAL.values()))
    stops = {it.run: it.reason for it in play.look().actions if isinstance(it, Stop)}
    if told.over:
        assert told.to_run == 0
        return
    assert {run.name for run in (*told.replaced, *told.cancelled)} == set(stops)
    assert all(stops[run.name] == "NoLongerWanted" for run in told.cancelled)
    assert told.kept == len(play.history.succeeded)
    if any(run.state is RunState.STOPPING for run in play.history.live.values()):
        return  # what is being stopped already is nobody's news, and its unit may end well or anew
    going_on = {run.index for run in told.going_on}
    assert len(run_to_the_end(play) - going_on) == told.to_run


def run_to_the_end(play: Play) -> set[int]:
    """Every unit succeeds from here on; those that were begun."""
    begun: set[int] = set()
    for _ in range(500):
        begun |= {it.index for it in play.turn().actions if isinstance(it, Start)}
        play.confirm()
        working = [i for i in play.active if play.live(i).state is not RunState.STOPPING]
        if working:
            play.succeed(working[0])
        play.now_s += 1000.0
        if play.history.refused is not None or (not play.active and not play.look().actions):
            return begun
    raise AssertionError("it never ends")
