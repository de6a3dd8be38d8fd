"""Chooses the warnings about trials as they report: a metric that no trial reports, or one that is
always the same; and the front of several metrics. Pure; called by sweep.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.scores import Values, sign_value
from fleetctl.controllers.status_keys import Status
from fleetctl.specs.values.hints import NO_TEXT, HintedText
from fleetctl.specs.values.metrics import Metrics

METRIC_MISSING = "MetricMissing"
SAME_METRIC = "SameMetric"
FRONT_SHOWN_MAX = 200  # trials; some 100 bytes each
SAME_AFTER = 4  # trials with equal scores, which by chance is rare


def describe_report(
    read: Metrics | None,
    metric: str,
    *,
    logs: bool,
) -> str:
    """Returns the way in which a program reports a value. read: the `metrics` of its template,
    which are searched for in its output or files; logs: the program logs to W&B; else it uses
    fleetctl's own interface.
    """
    if read is not None:
        place = f"`{read.path}`" if read.path else "what the program prints"
        return f"see that `template.metrics` finds `{metric}` in {place}"
    if logs:
        return f'wandb.log({{"{metric}": ...}}) or wandb.run.summary["{metric}"] = ...'
    return f"report(step=..., {metric}=...) or SUBMIT({metric}=...)"


def warning_of(
    history: History,
    metrics: Sequence[str],
    way: str,
) -> HintedText:
    """Returns a reason and a sentence with a hint, or an empty text. metrics: the name of one
    metric, or several that go together. way: as returned by `describe_report`.
    """
    if history.succeeded and not history.scores:
        return _describe_unreported(metrics, len(history.succeeded), way)
    if _is_same(history):
        score = next(iter(history.scores.values()))
        return HintedText(
            f"{SAME_METRIC}: all {len(history.scores)} trials so far have the same {metrics[0]},"
            f" {score:g}, whatever their parameters",
            "see that the program trains with the parameters that it reads, such as"
            " wandb.config.lr, and not with defaults of its own",
        )
    return NO_TEXT


def _describe_unreported(
    metrics: Sequence[str],
    done: int,
    way: str,
) -> HintedText:
    trials = "the first trial has" if done == 1 else f"{done} trials have"
    where = "search.metric.name" if len(metrics) == 1 else "metrics"
    return HintedText(
        f"{METRIC_MISSING}: {trials} succeeded and none reported {_name_metrics(metrics)}",
        f"{way}, or fix `{where}`",
    )


def describe_missing(metrics: Sequence[str]) -> str:
    """Explains why a search has no result although all its trials succeeded."""
    number = "a finite number" if len(metrics) == 1 else "finite numbers"
    return f"no trial reported {number} as {_name_metrics(metrics)}"


def _name_metrics(metrics: Sequence[str]) -> str:
    names = " and ".join(f"`{name}`" for name in metrics)
    if len(metrics) == 1:
        return f"the metric {names}"
    return f"all of the metrics {names}"


def front_status(front: Iterable[tuple[int, Values]], goals: Sequence[tuple[str, str]]) -> Status:
    """Returns the status of a search with several metrics, (name, goal) each: the trials that no
    other trial beats. A long front is thinned evenly to fit into a status.
    """
    found = list(front)
    step = max(1, -(-len(found) // FRONT_SHOWN_MAX))
    return {
        "metrics": [{"name": name, "goal": goal} for name, goal in goals],
        "frontSize": len(found),
        "front": [
            {
                "index": index,
                "metrics": {
                    name: sign_value(value, goal)
                    for (name, goal), value in zip(goals, values, strict=True)
                },
            }
            for index, values in found[::step]
        ],
    }


def _is_same(history: History) -> bool:
    if len(history.scores) < SAME_AFTER or history.lowest is None or history.highest is None:
        return False
    return history.lowest[0] == -history.highest[0]
