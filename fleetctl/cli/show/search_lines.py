"""The state of a search, for `describe`: the condition of `early_terminate`, the stopped trials,
and the importance of parameters. Unknown figures are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from fleetctl.common.text import and_more, count_noun, did_you_mean, escape_line, format_scalar
from fleetctl.controllers.vocabulary.status_keys import EARLY_TERMINATED
from fleetctl.views.objects import SUCCEEDED, View, as_mapping
from fleetctl.views.store_reading import StoreReading

STOPPED_SHOWN_MAX = 5
PARAMETERS_SHOWN_MAX = 5
NAMES_SHOWN_MAX = 8
# All results are read for it, 500 in some 50 ms of CPU; for more trials `plot` shows it.
IMPORTANCE_TRIALS_MAX = 500


def list_reported(seen: View, reading: StoreReading) -> list[str]:
    """Returns the metrics of the first trial that succeeded, where no trial has reported the
    search's metric: a name with another spelling is found here.
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
    return [escape_line(f"{told} ({seen.kind.unit} {run.index})" + (f"; {near}" if near else ""))]


def describe_rungs(seen: View) -> list[str]:
    """Returns `iteration 9: 12 trials, loss up to 2.4 goes on`, a line for each look of the
    search."""
    metric = seen.map("metric")
    side = "from" if metric.get("goal") == "maximize" else "up to"
    rungs = seen.status.get("rungs")
    return [
        escape_line(
            f"iteration {format_scalar(rung.get('iteration'))}: {_count_trials(rung)}, "
            f"{metric.get('name')} {side} {_format_short(rung.get('threshold'))} goes on"
        )
        for rung in map(as_mapping, rungs if isinstance(rungs, list) else [])
    ]


def _count_trials(rung: Mapping[str, object]) -> str:
    trials = rung.get("trials")
    return count_noun(trials if isinstance(trials, int) else 0, "trial")


def _format_short(value: object) -> str:
    if isinstance(value, (int, float)):
        return f"{value:.6g}"
    return format_scalar(value)


def list_stopped(seen: View, reading: StoreReading) -> list[str]:
    """Returns `trial 4: value 3.1 at iteration 9 is above 2.4`, of the first ones."""
    count = seen.count("stopped")
    if not count:
        return []
    early = (one.run for one in reading.tasks(seen) if one.run.reason == EARLY_TERMINATED)
    lines = [
        escape_line(f"{seen.kind.unit} {run.index}: {run.message}")
        for run in islice(early, STOPPED_SHOWN_MAX)
    ]
    if count > len(lines):
        lines.append(f"and {count - len(lines):,} more: fleetctl results {escape_line(seen.key)}")
    return lines


def describe_importance(seen: View, reading: StoreReading) -> list[str]:
    """Returns `lr 87% (higher is better), depth 0% (within chance)`, a line for each metric."""
    ended = seen.count("succeeded") + seen.count("stopped")
    if not seen.kind.searches or not 0 < ended <= IMPORTANCE_TRIALS_MAX:
        return []
    from fleetctl.views.plotting.gather import build_studies
    from fleetctl.views.plotting.importance import TRIALS_MIN, compute_importances

    if ended < TRIALS_MIN:
        return []
    lines = []
    for study in build_studies(seen, reading):
        shares = [
            f"{one.name} {one.share:.0%}" + (f" ({one.remark})" if one.remark else "")
            for one in compute_importances(study)
            if one.share is not None
        ]
        if shares and study.metric:
            listed = and_more(shares, most=PARAMETERS_SHOWN_MAX)
            lines.append(f"of {study.metric}: {listed}" if seen.status.get("metrics") else listed)
    return lines
