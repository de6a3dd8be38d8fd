"""How a search stands, for `describe`: what `early_terminate` asks for, whom it stopped, and which
parameters matter. What nobody knows yet is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from fleetctl.common.text import and_more, did_you_mean, plural, safe, scalar
from fleetctl.controllers.vocabulary.status_keys import EARLY_TERMINATED
from fleetctl.views.objects import SUCCEEDED, View, mapping
from fleetctl.views.reading import Reading

STOPPED_SHOWN_MAX = 5
PARAMETERS_SHOWN_MAX = 5
NAMES_SHOWN_MAX = 8
# All results are read for it, 500 in some 50 ms of CPU; of more trials `plot` tells it.
IMPORTANCE_TRIALS_MAX = 500


def search_lines(seen: View, reading: Reading) -> Iterator[tuple[str, list[str]]]:
    """(label, lines) of what there is to say."""
    found = (
        ("Reported", _reported(seen, reading)),
        ("Rungs", _rungs(seen)),
        ("Stopped", _stopped(seen, reading)),
        ("Importance", _importance(seen, reading)),
    )
    yield from ((label, lines) for label, lines in found if lines)


def _reported(seen: View, reading: Reading) -> list[str]:
    """What the first trial that succeeded did report, where no trial has told the search's metric:
    a name that is only spelled otherwise is found here.
    """
    wanted = seen.map("metric").get("name")
    if not isinstance(wanted, str) or seen.map("best") or not seen.count("succeeded"):
        return []
    succeeded = (one.run for one in reading.tasks(seen) if one.state == SUCCEEDED)
    run = next(succeeded, None)
    names = reading.metric_names(run.name) if run is not None else []
    if run is None or wanted in names:
        return []
    told = and_more(names, most=NAMES_SHOWN_MAX) or "nothing"
    near = did_you_mean(wanted, names)
    return [safe(f"{told} ({seen.kind.unit} {run.index})" + (f"; {near}" if near else ""))]


def _rungs(seen: View) -> list[str]:
    """`iteration 9: 12 trials, loss up to 2.4 goes on`, a line for each look of the search."""
    metric = seen.map("metric")
    side = "from" if metric.get("goal") == "maximize" else "up to"
    rungs = seen.status.get("rungs")
    return [
        safe(
            f"iteration {scalar(rung.get('iteration'))}: {_trials(rung)}, "
            f"{metric.get('name')} {side} {_short(rung.get('threshold'))} goes on"
        )
        for rung in map(mapping, rungs if isinstance(rungs, list) else [])
    ]


def _trials(rung: Mapping[str, object]) -> str:
    trials = rung.get("trials")
    return plural(trials if isinstance(trials, int) else 0, "trial")


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, (int, float)) else scalar(value)


def _stopped(seen: View, reading: Reading) -> list[str]:
    """`trial 4: value 3.1 at iteration 9 is above 2.4`, of the first ones."""
    count = seen.count("stopped")
    if not count:
        return []
    early = (one.run for one in reading.tasks(seen) if one.run.reason == EARLY_TERMINATED)
    lines = [
        safe(f"{seen.kind.unit} {run.index}: {run.message}")
        for run in islice(early, STOPPED_SHOWN_MAX)
    ]
    if count > len(lines):
        lines.append(f"and {count - len(lines):,} more: fleetctl results {safe(seen.key)}")
    return lines


def _importance(seen: View, reading: Reading) -> list[str]:
    """`lr 87% (higher is better), depth 0% (within chance)`, a line for each metric."""
    ended = seen.count("succeeded") + seen.count("stopped")
    if not seen.kind.searches or not 0 < ended <= IMPORTANCE_TRIALS_MAX:
        return []
    from fleetctl.cli.report.plotting.gather import studies
    from fleetctl.cli.report.plotting.importance import TRIALS_MIN, importances

    if ended < TRIALS_MIN:
        return []
    lines = []
    for study in studies(seen, reading):
        shares = [
            f"{one.name} {one.share:.0%}" + (f" ({one.remark})" if one.remark else "")
            for one in importances(study)
            if one.share is not None
        ]
        if shares and study.metric:
            listed = and_more(shares, most=PARAMETERS_SHOWN_MAX)
            lines.append(f"of {study.metric}: {listed}" if seen.status.get("metrics") else listed)
    return lines
