"""Ending what an object still holds: its runs and its idle sandboxes. Pure; called by the rules of
a pass.
"""

from __future__ import annotations

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import RunState
from fleetctl.controllers.planning.kind_controller import RunPolicy
from fleetctl.controllers.planning.plan import Action, CloseSandbox, Stop
from fleetctl.controllers.schedule.desired import DesiredObject
from fleetctl.specs.values.hints import HintedText


def end_all(
    history: History,
    reason: str,
    policy: RunPolicy,
) -> tuple[Action, ...]:
    """Returns stops for every run and every idle sandbox."""
    return (*stop_all(history, reason, policy), *close_all(history, reason))


def stop_all(
    history: History,
    reason: str,
    policy: RunPolicy,
) -> list[Action]:
    return [
        Stop(run.name, reason, policy.grace_s)
        for run in history.live.values()
        if run.state is not RunState.STOPPING
    ]


def close_all(history: History, reason: str) -> list[Action]:
    return [CloseSandbox(box.name, reason) for box in history.sandboxes.values() if not box.busy]


def describe_stopping(history: History) -> tuple[str, ...]:
    """Returns a sentence about the runs that are being stopped, if there are any."""
    count = sum(1 for run in history.live.values() if run.state is RunState.STOPPING)
    runs = "run is" if count == 1 else "runs are"
    if count:
        return (f"{count} {runs} being stopped",)
    return ()


def stopping_because(history: History, desired: DesiredObject) -> tuple[HintedText, ...]:
    """Returns the same, and why they are not yet confirmed gone."""
    rules = tuple(map(HintedText, describe_stopping(history)))
    if not rules and not history.sandboxes:
        return ()
    why = [HintedText(it.message, it.hint) for it in desired.troubles.values()]
    why += [text for name, text in desired.held.items() if name in history.live]
    if rules and why:
        return (why[0].prefixed(f"{rules[0]}: "), *why[1:])
    return (*why, *rules)
