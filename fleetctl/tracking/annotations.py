"""Annotations that we keep on objects ourselves; an apply leaves them as they are, unless it is
what they tell of. Read by the engine and by what shows objects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import inf

from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import TERMINAL_PHASES
from fleetctl.controllers.vocabulary import bookkeeping
from fleetctl.specs import content
from fleetctl.specs.content import Pins
from fleetctl.specs.values.hashing import short_hash
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
# The command of the same sweep, a JSON list, of work whose template has none.
COMMAND = "fleetctl.dev/command"
# Those that no document shows.
PRIOR, WANDB = bookkeeping.PRIOR, bookkeeping.WANDB
RELEASED, RESULTS = bookkeeping.RELEASED, bookkeeping.RESULTS
INDEXES = bookkeeping.INDEXES
# What `--keep-finished` and FinishRunning said when the work changed: seconds since the epoch.
KEPT = "fleetctl.dev/kept-finished"
FINISHING = "fleetctl.dev/finishing"
# What `--rollout` said, in place of the spec's own until the work changes again.
ROLLOUT = "fleetctl.dev/rollout"
# A request to run all again whatever is known by then: seconds since the epoch.
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
# Which fields somebody set by hand that no file had; see by_hand.py.
FIELDS = "fleetctl.dev/fields"
# The label that ties an object to the files that it came from, as kubectl's part-of label does.
APPLYSET = "fleetctl.dev/applyset"

# What is known of a source; it goes when the source becomes another.
OF_SOURCE = (REVISION, COPY, APART, ORIGIN)
NOTES = (
    APART,
    APPROVED,
    COMMAND,
    COPY,
    ESTIMATE,
    FIELDS,
    FINISHING,
    FUNCTION,
    INDEXES,
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
        command=annotations.get(COMMAND, ""),
        prior=annotations.get(PRIOR, ""),
        results=annotations.get(RESULTS, ""),
        indexes=annotations.get(INDEXES, ""),
        wandb=_config_at_wandb(annotations.get(WANDB, "")),
        kept_until_s=_moment(annotations.get(KEPT, "")),
        finishing_at_s=_moment(annotations.get(FINISHING, "")),
        rollout=annotations.get(ROLLOUT, ""),
    )


def rerun_at_s(annotations: Mapping[str, str]) -> float:
    """When it was asked for that all runs again: what was known by then is not taken."""
    at_s = _moment(annotations.get(RERUN, ""))
    return -inf if at_s is None else at_s


def work_digest(kind: str, spec: Mapping[str, object], annotations: Mapping[str, str]) -> str:
    """Returns a digest of the work that an object asks for: its fields that decide what comes of
    it, and what it was pinned to. `parallelism` or `suspend` change nothing of it.
    """
    template = spec.get("template")
    work = _without_rules(spec, content.KINDS.get(kind, {}))
    if isinstance(template, dict):
        work["template"] = _without_rules(template, content.TEMPLATE)
    pinned = [annotations.get(it, "") for it in (REVISION, FUNCTION, MODELS)]
    return short_hash([work, pinned])


def _without_rules(
    fields: Mapping[str, object], roles: Mapping[str, content.Role]
) -> dict[str, object]:
    rules = {
        "".join((head, *(it.title() for it in rest)))
        for (head, *rest), role in ((name.split("_"), role) for name, role in roles.items())
        if role in (content.RULE, content.PLACE)
    }
    return {key: it for key, it in fields.items() if key not in rules}


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
