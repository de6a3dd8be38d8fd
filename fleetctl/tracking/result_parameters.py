"""The results of a finished job, as the parameters of another one's tasks. Read from its rows;
called by the engine when that other one may begin, and by an apply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetctl.common.errors import UsageError
from fleetctl.controllers.depends.results import (
    UNFIT,
    Params,
    ResultParameters,
    check_results,
    format_request,
)
from fleetctl.controllers.model import CACHED, LIVE_STATES, Resource, Run, RunState
from fleetctl.controllers.trials.winner import MissingInput
from fleetctl.specs.blocks.from_results import FromResults
from fleetctl.stores.base import RunStore
from fleetctl.stores.read.row_filter import SUCCEEDED, choose_rows
from fleetctl.tracking.load import work_of
from fleetctl.tracking.track import ResourceWork

_SHOWN = {
    RunState.SUCCEEDED: "Succeeded",
    RunState.STOPPED: "Cancelled",
    RunState.REFUSED: "Refused",
}


def collect_result_rows(
    giver: Resource,
    given: FromResults,
    runs: RunStore,
) -> ResultParameters | MissingInput:
    """Returns its present results, by its newest spec; it must have finished."""
    work = work_of(giver, runs)
    newest = {run.index: (run, result) for run, result in runs.of(giver.uid)}
    newest = {
        index: newest[index]
        for index in sorted(newest)
        if work.controller.unit(index) is not None and not newest[index][0].put_aside
    }
    table = [_build_row(work, run, result) for run, result in newest.values()]
    try:
        indexes = choose_rows(table, given.where or SUCCEEDED)
    except UsageError as error:
        text = f"tasks.fromResults.where: {error}"
        return MissingInput(text, for_good=True, reason=UNFIT, hint=error.hint or "")
    found = check_results(given, giver.key, _list_results(newest, indexes))
    if isinstance(found, MissingInput):
        return found
    return ResultParameters(found, giver.uid, giver.generation, format_request(given))


def describe_results(rows: Mapping[int, Params], key: str) -> str:
    """Returns the rows as a sentence."""
    return f"{len(rows):,} result{'s'[: len(rows) != 1]} of {key}"


def _list_results(
    newest: Mapping[int, tuple[Run, str | None]], indexes: list[int]
) -> Iterator[tuple[int, str | None]]:
    for index in indexes:
        yield index, newest[index][1]


def _build_row(
    work: ResourceWork,
    run: Run,
    result: str | None,
) -> tuple[object, ...]:
    assert run.state not in LIVE_STATES, f"{run.name} runs, and its object has ended"
    took_s = None
    if run.started_at_s is not None and run.ended_at_s is not None:
        took_s = max(0.0, run.ended_at_s - run.started_at_s)
    unit = work.controller.unit(run.index)
    old = unit is not None and run.content not in ("", unit.content)
    return (
        run.index,
        _SHOWN.get(run.state, "Failed"),
        int(run.reason == CACHED),
        run.attempt,
        run.reason,
        run.exit_code,
        run.provider,
        run.params,
        took_s,
        run.cost_usd,
        result,
        run.content,
        int(old),
        run.name,
        run.message,
    )
