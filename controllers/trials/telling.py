"""What is to be warned of while trials come in: a metric that none reports, or one that is always
the same. Pure; called by sweep.py.
"""

from __future__ import annotations

from fleetctl.controllers.history.history import History
from fleetctl.specs.values.hints import with_hint

METRIC_MISSING, SAME_METRIC = "MetricMissing", "SameMetric"
SAME_AFTER = 4  # trials of one score, which by chance is rare

# How a program tells a value: one that knows us, and one that was written for W&B.
_REPORTS = "report(step=..., {0}=...) or SUBMIT({0}=...)"
_LOGS = 'wandb.log({{"{0}": ...}}) or wandb.run.summary["{0}"] = ...'


def warning_of(history: History, metric: str, *, logs: bool) -> str:
    """A reason and a sentence with a hint, or "". logs: the program was written for W&B."""
    if history.succeeded and not history.scores:
        return _unreported(metric, len(history.succeeded), _LOGS if logs else _REPORTS)
    if _is_same(history):
        score = next(iter(history.scores.values()))
        return with_hint(
            f"{SAME_METRIC}: all {len(history.scores)} trials so far have the same {metric},"
            f" {score:g}, whatever their parameters",
            "see that the program trains with the parameters that it reads, such as"
            " wandb.config.lr, and not with defaults of its own",
        )
    return ""


def _unreported(metric: str, done: int, way: str) -> str:
    trials = "the first trial has" if done == 1 else f"{done} trials have"
    return with_hint(
        f"{METRIC_MISSING}: {trials} succeeded and none reported the metric `{metric}`",
        f"{way.format(metric)}, or mend `search.metric.name`",
    )


def _is_same(history: History) -> bool:
    if len(history.scores) < SAME_AFTER or history.lowest is None or history.highest is None:
        return False
    return history.lowest[0] == -history.highest[0]
