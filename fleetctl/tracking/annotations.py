"""Annotations that we keep on objects ourselves; an apply leaves them as they are, unless it is
what they tell of. Read by the engine and by what shows objects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import TERMINAL_PHASES
from fleetctl.controllers.vocabulary import bookkeeping
from fleetctl.specs.content import Pins
from fleetctl.tracking.kept_by import KEPT_BY

# What `source.path` held when its object was applied, or the commit of `source.git`.
REVISION = "fleetctl.dev/source-revision"
# The copy that runs get, where it holds more than what the revision counts; of a repository with a
# `path`, the commit.
COPY = "fleetctl.dev/source-copy"
# Files in `source.path` that its manifest was read from, a JSON list of relative paths.
APART = "fleetctl.dev/source-apart"
# Where `source.path` was: what is stored is relative to the manifest.
ORIGIN = "fleetctl.dev/source-origin"
# The content of the Function that the template names.
FUNCTION = "fleetctl.dev/function-content"
# What the endpoints that the template asks call their models.
MODELS = "fleetctl.dev/models-content"
# What `paramsFrom` gave, a JSON object: the parameters of the best trial when its sweep was over.
PARAMS = "fleetctl.dev/params"
# Those that no document shows.
PRIOR, WANDB = bookkeeping.PRIOR, bookkeeping.WANDB
RELEASED, RESULTS = bookkeeping.RELEASED, bookkeeping.RESULTS
# What `--keep-finished` and FinishRunning said when the work changed: seconds since the epoch.
KEPT = "fleetctl.dev/kept-finished"
FINISHING = "fleetctl.dev/finishing"
# What `--rollout` said, in place of the spec's own until the work changes again.
ROLLOUT = "fleetctl.dev/rollout"
# A request to run all again whatever is known: the generation that it began with.
RERUN = "fleetctl.dev/rerun"
# What its whole work was estimated to cost when its spec was applied; see money/estimate.py.
ESTIMATE = "fleetctl.dev/estimate"
# The last `retry` that was carried out, so that one that got no answer may be repeated.
RETRIED = "fleetctl.dev/retried"
# Of what a Schedule made: the uid of the schedule, and the moment that it was made for, in seconds
# since the epoch; empty where somebody asked for it by hand.
SCHEDULED_BY = "fleetctl.dev/scheduled-by"
SCHEDULED_AT = "fleetctl.dev/scheduled-at"
# On a Source: the last request by hand to look at once, and the one that allows what a commit
# loses, with that commit behind it where a person saw which.
RECONCILE = "fleetctl.dev/reconcile"
APPROVED = "fleetctl.dev/approved-revision"

# What is known of a source; it goes when the source becomes another.
OF_SOURCE = (REVISION, COPY, APART, ORIGIN)
NOTES = (
    APART,
    APPROVED,
    COPY,
    ESTIMATE,
    FINISHING,
    FUNCTION,
    KEPT,
    KEPT_BY,
    MODELS,
    ORIGIN,
    PARAMS,
    PRIOR,
    RECONCILE,
    RELEASED,
    RERUN,
    RESULTS,
    RETRIED,
    REVISION,
    ROLLOUT,
    SCHEDULED_AT,
    SCHEDULED_BY,
    WANDB,
)


def pins_of(annotations: Mapping[str, str]) -> Pins:
    """What the names in a spec stood for when it was applied, and what was said of that apply."""
    return Pins(
        revision=annotations.get(REVISION, ""),
        function=annotations.get(FUNCTION, ""),
        models=annotations.get(MODELS, ""),
        params=annotations.get(PARAMS, ""),
        prior=annotations.get(PRIOR, ""),
        results=annotations.get(RESULTS, ""),
        wandb=_config_at_wandb(annotations.get(WANDB, "")),
        kept_until_s=_moment(annotations.get(KEPT, "")),
        finishing_at_s=_moment(annotations.get(FINISHING, "")),
        rollout=annotations.get(ROLLOUT, ""),
    )


def waits_for(sweep: Resource | None) -> str:
    """The sweep whose trials this one waits for before it begins; "" where it does not."""
    if sweep is None or sweep.deleted_at_s is not None or PRIOR in sweep.annotations:
        return ""
    document = json.loads(sweep.status or "{}")
    if (
        document.get("phase") in TERMINAL_PHASES
        and document["observedGeneration"] == sweep.generation
    ):
        return ""
    prior = json.loads(sweep.spec).get("search", {}).get("priorTrials") or {}
    return str(prior.get("fromSweep", ""))


def _config_at_wandb(text: str) -> str:
    """Of a sweep that was at W&B before; "" while it is not known, and of one that we made."""
    home = json.loads(text or "{}").get("home") or {}
    return json.dumps(home["config"]) if home.get("config") else ""


def _moment(text: str) -> float | None:
    """Of what somebody else wrote there, nothing is made."""
    try:
        return float(text) if text else None
    except ValueError:
        return None
