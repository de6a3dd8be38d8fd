"""Reads the files in which a command reports its result and its metrics. Never follows a link.

Called by attempt.py while the run lives and at its end.
"""

from __future__ import annotations

import os

from fleetctl.guest.remote import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from fleetctl.guest.checkpoints.watch import Watch
    from fleetctl.guest.journal.masking import Masking
    from fleetctl.guest.journal.record import Journal
    from fleetctl.guest.journal.results import MetricLines
    from fleetctl.guest.metrics.followed import Followed
    from fleetctl.guest.supervision.services.process import ServiceRecords
    from fleetctl.guest.wandb.trial import Trial


def read_metrics(
    known: Optional[MetricLines],
    journal: Journal,
    say: Callable[[str], None],
    *,
    whole: bool = False,
) -> tuple[Optional[MetricLines], bool]:
    """Records new lines of $FLEETCTL_METRICS; returns whether there were any.

    known: the lines read before; say: reports a wrong line in the log; whole: also more than one
    look's bytes.
    """
    if not os.path.lexists(f"{place.FILES}/metrics.jsonl"):
        return known, False
    from fleetctl.guest.journal.results import METRICS_READ_BYTES_MAX, MetricLines

    lines = known or MetricLines()
    news = 0
    last = False
    while True:
        before = lines.offset
        data = _read_piece("metrics.jsonl", lines.offset, METRICS_READ_BYTES_MAX)
        found, wrong = lines.take(data or b"", last=last)
        for problem in wrong:
            say(problem)
        news += sum(journal.metric(step, values, None) for step, values in found)
        if last or not whole:
            return lines, news > 0
        last = lines.offset == before


def trial_of(
    order: dict[str, Any],
    variables: dict[str, str],
    directory: str,
) -> Trial:
    """Returns the trial of a program that may read its parameters from wandb; called before it
    starts.

    variables: all its other ones; directory: where it begins.
    """
    from fleetctl.guest.wandb.trial import Trial

    trial = Trial(order, os.path.abspath(place.FILES), variables, directory)
    trial.prepare()
    trial.begin()
    return trial


def follow_metrics(
    order: dict[str, Any],
    directory: str,
    say: Callable[[str], None],
) -> Followed:
    """Returns the reader of a program's metrics as its template defines; called before it starts.

    directory: where it begins; say: writes a line to its log.
    """
    from fleetctl.guest.metrics.followed import Followed

    followed = Followed(order["metrics"], directory, say)
    followed.begin()
    return followed


def watch_of(
    order: dict[str, Any],
    commit: Callable[[list[str], Callable[[str], None]], None],
    say: Callable[[str], None],
    variables: Callable[[], dict[str, str]],
) -> Watch:
    """Returns the watch for new checkpoints of a program; called before it starts.

    commit: makes mounts durable and calls back with the failure; say: writes a line to its log;
    variables: of its environment.
    """
    from fleetctl.guest.checkpoints.begin import find_mounts
    from fleetctl.guest.checkpoints.disk import Disk
    from fleetctl.guest.checkpoints.watch import Watch

    asked = order["checkpoint"]
    held = find_mounts(asked["path"], order["volumes"])
    mounts = [mount for mount in order["sync"] if mount in held]

    def committed(then: Callable[[str], None]) -> None:
        commit(mounts, then)

    path = asked["path"]
    mirror = None
    if asked["mirror"]:
        from fleetctl.guest.checkpoints.mirror import mirror_of

        mirror = mirror_of(order, path, variables())
    commits = committed if mounts else None
    return Watch(
        asked,
        Disk(path),
        path=path,
        commit=commits,
        say=say,
        mirror=mirror,
    )


def services_of(
    order: dict[str, Any],
    runs: int,
    masking: Optional[Masking],
) -> ServiceRecords:
    """Returns the records of its services' output. The stream of the run finds their names in a
    file.
    """
    from fleetctl.guest.supervision.services.process import ServiceRecords

    names = [one["name"] for one in order["services"]]
    with open(place.services_path(order["run"]), "w", encoding="ascii") as file:
        file.write("".join(f"{name}\n" for name in names))
    return ServiceRecords(
        names,
        runs,
        order["run"],
        order["log_bytes_max"],
        masking,
    )


def judge_result(
    value: Optional[tuple[Any]],
    ended: dict[str, Any],
    remarks: list[str],
) -> str:
    """Returns the journal's line for the result, or "". Turns the end into a failure when the
    result cannot be kept.

    value: as the task handed it in, if it did; remarks: gains remarks for the user.
    """
    problem = ""
    if value is None and os.path.lexists(f"{place.FILES}/result.json"):
        from fleetctl.guest.journal.results import RESULT_BYTES_MAX, parse_result

        data = _read_piece("result.json", 0, RESULT_BYTES_MAX)
        if data is not None:
            value, problem = parse_result(data)
            value = (value,)
    text = ""
    if value is not None and not problem:
        from fleetctl.guest.journal.digest import result_line
        from fleetctl.guest.journal.results import judge_result

        text, problem, changed = judge_result(value[0])
        remarks += [changed] if changed else []
    if problem:
        ended.update(
            ok=False,
            reason="ResultInvalid",
            message=problem,
        )
        return ""
    if text:
        return result_line(text)
    return ""


def explain_odd_result() -> str:
    """Returns why the result file is not read, or ""."""
    path = f"{place.FILES}/result.json"
    if not os.path.lexists(path):
        return ""
    from fleetctl.guest.journal.results import explain_odd_file

    return explain_odd_file(path)


def remove_task_file(name: str) -> None:
    """Removes a file of a task, so that the next task of a sandbox does not hand it in."""
    path = f"{place.FILES}/{name}"
    if os.path.lexists(path):
        from fleetctl.guest.journal.results import remove_result

        remove_result(path)


def _read_piece(
    name: str,
    offset: int,
    limit: int,
) -> Any:
    from fleetctl.guest.journal.results import read_below

    return read_below(place.FILES, name, offset, limit)
