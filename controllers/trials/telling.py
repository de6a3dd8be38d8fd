"""What is to be told of trials as they come in: a metric that none reports, or one that is always
the same; and the front of several. Pure; called by sweep.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.metrics.front import Front
from fleetctl.controllers.trials.scores import signed
from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.specs.values.hints import with_hint
from fleetctl.specs.values.metrics import Metrics

METRIC_MISSING, SAME_METRIC = "MetricMissing", "SameMetric"
FRONT_SHOWN_MAX = 200  # trials; some 100 bytes each
SAME_AFTER = 4  # trials of one score, which by chance is rare


def way_of(read: Metrics | None, metric: str, *, logs: bool) -> str:
    """How a program tells a value. read: the `metrics` of its template, that are looked for in what
    it prints or writes; logs: it was written for W&B; else it knows us.
    """
    if read is not None:
        place = f"`{read.path}`" if read.path else "what the program prints"
        return f"see that `template.metrics` finds `{metric}` in {place}"
    if logs:
        return f'wandb.log({{"{metric}": ...}}) or wandb.run.summary["{metric}"] = ...'
    return f"report(step=..., {metric}=...) or SUBMIT({metric}=...)"


def warning_of(history: History, metrics: Sequence[str], way: str) -> str:
    """A reason and a sentence with a hint, or "". metrics: the names of one, or of several that go
    together. way: as of `way_of`.
    """
    if history.succeeded and not history.scores:
        return _unreported(metrics, len(history.succeeded), way)
    if _is_same(history):
        score = next(iter(history.scores.values()))
        return with_hint(
            f"{SAME_METRIC}: all {len(history.scores)} trials so far have the same {metrics[0]},"
            f" {score:g}, whatever their parameters",
            "see that the program trains with the parameters that it reads, such as"
            " wandb.config.lr, and not with defaults of its own",
        )
    return ""


def _unreported(metrics: Sequence[str], done: int, way: str) -> str:
    trials = "the first trial has" if done == 1 else f"{done} trials have"
    where = "search.metric.name" if len(metrics) == 1 else "metrics"
    return with_hint(
        f"{METRIC_MISSING}: {trials} succeeded and none reported {_named(metrics)}",
        f"{way}, or mend `{where}`",
    )


def missing(metrics: Sequence[str], way: str) -> str:
    """Why a search came to nothing whose trials all succeeded."""
    number = "a finite number" if len(metrics) == 1 else "finite numbers"
    return with_hint(f"no trial reported {number} as {_named(metrics)}", way)


def _named(metrics: Sequence[str]) -> str:
    names = " and ".join(f"`{name}`" for name in metrics)
    return f"the metric {names}" if len(metrics) == 1 else f"all of the metrics {names}"


def front_status(front: Front, goals: Sequence[tuple[str, str]]) -> Status:
    """Of a search with several metrics, (name, goal) each: the trials that no other one beats. Of
    a long front so many as a status has room for, evenly.
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
                    name: signed(value, goal)
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
