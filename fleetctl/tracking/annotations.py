"""The annotations that the program sets on objects, and that an apply leaves unchanged: among them
the values that work takes from a sweep's best trial.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import inf

from fleetctl.common.author import AUTHOR, CREATOR
from fleetctl.controllers import status_keys
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import TERMINAL_PHASES
from fleetctl.controllers.trials.winner import SweepWinner
from fleetctl.specs import content
from fleetctl.specs.content import Pins
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec
from fleetctl.specs.values.hashing import canonical_json, short_hash
from fleetctl.tracking.kept_by import KEPT_BY

# The digest of `source.path` when its object was applied, or the commit of `source.git`.
REVISION = "fleetctl.dev/source-revision"
# The copy that runs get, where it holds more files than the revision counts; of a repository with a
# `path`, the commit.
COPY = "fleetctl.dev/source-copy"
# Files in `source.path` that its manifest was read from, a JSON list of relative paths.
APART = "fleetctl.dev/source-apart"
# Of a commit: a digest of its content beside the manifest's own file.
BESIDE = "fleetctl.dev/source-beside"
# The directory of `source.path`: the stored path is relative to the manifest.
ORIGIN = "fleetctl.dev/source-origin"
# The content of the Function that the template names.
FUNCTION = "fleetctl.dev/function-content"
# The models of the endpoints that the template calls.
MODELS = "fleetctl.dev/models-content"
# The parameters from `paramsFrom`, a JSON object: of the best trial when its sweep had finished.
PARAMS = "fleetctl.dev/params"
# The command of the same sweep, a JSON list, for work whose template has none.
COMMAND = "fleetctl.dev/command"
# Annotations that no document shows.
PRIOR = status_keys.PRIOR
WANDB = status_keys.WANDB
RELEASED = status_keys.RELEASED
RESULTS = status_keys.RESULTS
INDEXES = status_keys.INDEXES
# Set by `--keep-finished` and FinishRunning when the work changed: seconds since the epoch.
KEPT = "fleetctl.dev/kept-finished"
FINISHING = "fleetctl.dev/finishing"
# The value of `--rollout`, instead of the spec's own until the work changes again.
ROLLOUT = "fleetctl.dev/rollout"
# A request to repeat all units whatever is known by then: seconds since the epoch.
RERUN = "fleetctl.dev/rerun"
# The estimated cost of its whole work when its spec was applied; see budget.py.
ESTIMATE = "fleetctl.dev/estimate"
# The last `retry` that was carried out, so that one without a reply may be repeated.
RETRIED = "fleetctl.dev/retried"
# On an object of a Schedule: the uid of the schedule, and the moment that it was made for, in
# seconds since the epoch; empty where a user made it by hand.
SCHEDULED_BY = "fleetctl.dev/scheduled-by"
SCHEDULED_AT = "fleetctl.dev/scheduled-at"
# On a Source: the last request by hand to look at once, and the one that allows the losses of a
# commit, with that commit behind it where the user saw which.
RECONCILE = "fleetctl.dev/reconcile"
APPROVED = "fleetctl.dev/approved-revision"
# The fields that a user set by hand and that no file had; see by_hand.py.
FIELDS = "fleetctl.dev/fields"
# The traces that the object's runs belong to; see note_trace.
TRACES = "fleetctl.dev/traces"
# The label that ties an object to the files that it came from, as kubectl's part-of label does.
APPLYSET = "fleetctl.dev/applyset"

TRACES_KEPT_MAX = 8  # of an object: one for each apply that changed it

# The facts on a source; they are removed when the source becomes another.
OF_SOURCE = (REVISION, COPY, APART, BESIDE, ORIGIN)
NOTES = (
    APART,
    APPROVED,
    AUTHOR,
    BESIDE,
    COMMAND,
    COPY,
    CREATOR,
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
    TRACES,
    WANDB,
)


def pins_of(annotations: Mapping[str, str]) -> Pins:
    """Returns the versions behind the names in a spec when it was applied, and the apply's
    options."""
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
        kept_until_s=_parse_moment(annotations.get(KEPT, "")),
        finishing_at_s=_parse_moment(annotations.get(FINISHING, "")),
        rollout=annotations.get(ROLLOUT, ""),
    )


def rerun_at_s(annotations: Mapping[str, str]) -> float:
    """Returns when a rerun of all units was requested: results from before are not reused."""
    at_s = _parse_moment(annotations.get(RERUN, ""))
    if at_s is None:
        return -inf
    return at_s


def work_digest(
    kind: str,
    spec: Mapping[str, object],
    annotations: Mapping[str, str],
) -> str:
    """Returns a digest of the work that an object asks for: of its fields that decide its results,
    and its pins. `parallelism` or `suspend` change nothing.
    """
    template = spec.get("template")
    work = _without_rules(spec, content.KINDS.get(kind, {}))
    if isinstance(template, dict):
        work["template"] = _without_rules(template, content.TEMPLATE)
    pinned = [annotations.get(it, "") for it in (REVISION, FUNCTION, MODELS)]
    return short_hash([work, pinned])


def _without_rules(
    fields: Mapping[str, object], roles: Mapping[str, content.FieldRole]
) -> dict[str, object]:
    rules = {
        "".join((head, *(it.title() for it in rest)))
        for (head, *rest), role in ((name.split("_"), role) for name, role in roles.items())
        if role in (content.RULE, content.PLACE)
    }
    return {key: it for key, it in fields.items() if key not in rules}


def waits_for(sweep: Resource | None) -> str:
    """Returns the sweep whose trials this one waits for before it begins; "" without one."""
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
    """Returns the configuration of a sweep that was at W&B before; "" while it is unknown, and for
    one that we made."""
    home = json.loads(text or "{}").get("home") or {}
    if home.get("config"):
        return json.dumps(home["config"])
    return ""


def _parse_moment(text: str) -> float | None:
    """Returns the time; a foreign text is ignored."""
    try:
        return float(text) if text else None
    except ValueError:
        return None


def needs_command(spec: object) -> bool:
    """Returns true where work with a sweep's parameters runs that sweep's command."""
    if isinstance(spec, BatchJobSpec):
        return spec.params_from is not None and spec.template.work is None
    if isinstance(spec, TrainingRunSpec) and spec.params_from is not None:
        return any(spec.template_of(at).work is None for at in range(spec.count()))
    return False


def notes_of(found: SweepWinner) -> dict[str, str]:
    """Returns the notes by annotation; without a command where its own template has one."""
    notes = {PARAMS: canonical_json(dict(found.params))}
    if found.command:
        return {**notes, COMMAND: canonical_json(list(found.command))}
    return notes


def note_trace(
    annotations: Mapping[str, str],
    traceparent: str,
    now_s: float,
) -> dict[str, str]:
    """Returns the annotations with one more trace: runs that begin from now on belong to it."""
    kept = [*_read_traces(annotations), (now_s, traceparent)][-TRACES_KEPT_MAX:]
    return {**annotations, TRACES: json.dumps(kept, separators=(",", ":"))}


def find_trace(annotations: Mapping[str, str], began_at_s: float) -> tuple[float, str] | None:
    """Returns since when the object belongs to the trace of a run that began then, and its
    traceparent; None for an object that no traced apply changed."""
    known = _read_traces(annotations)
    fitting = [it for it in known if it[0] <= began_at_s] or known[:1]
    return fitting[-1] if fitting else None


def _read_traces(annotations: Mapping[str, str]) -> list[tuple[float, str]]:
    """Reads the note; a foreign text is ignored."""
    text = annotations.get(TRACES)
    if not text:
        return []
    try:
        return [(float(since_s), str(traceparent)) for since_s, traceparent in json.loads(text)]
    except (TypeError, ValueError):
        return []
