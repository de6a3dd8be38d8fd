"""What a unit stands for: the one table that says, field by field, what a change of a spec does to
work that is done. Read by controllers for what is outdated, by the cache for what is equal, and by
`template_hash` for what a live run is replaced for. Pure.

A field that no table holds fails tests/unit/specs/test_specs_content.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from fleetctl.specs.values.hashing import short_hash

if TYPE_CHECKING:
    from fleetctl.specs.blocks.common import ParamsFrom, Placement
    from fleetctl.specs.blocks.template import Source, Template
    from fleetctl.specs.kinds.function import FunctionSpec


class Role(Enum):
    """What a change of a field means."""

    UNITS = "units"  # which units there are, or their parameters: those that differ are new work
    WORK = "work"  # what comes of a unit: finished ones are outdated, live ones are replaced
    PLACE = "place"  # what surrounds a run: live ones are replaced, finished ones stay
    RULE = "rule"  # neither: limits, policies, names


UNITS, WORK, PLACE, RULE = Role.UNITS, Role.WORK, Role.PLACE, Role.RULE

# What a task finds around it, in a sandbox or in a container of a Function.
SURROUNDINGS: Mapping[str, Role] = {
    "image": WORK,
    "source": WORK,
    "resources": PLACE,
    "env": WORK,
    "secrets": WORK,
    "volumes": WORK,
}

TEMPLATE: Mapping[str, Role] = {
    **SURROUNDINGS,
    "python": WORK,
    "command": WORK,
    "script": WORK,
    "endpoints": WORK,  # by their names, and by what they call their models
    "prompt": WORK,  # by PROMPT
    "runtime": WORK,
    "function": WORK,  # by what the Function says, once that is known; not by its name
    "timeout_seconds": RULE,
    "termination_grace_period_seconds": RULE,
    "workdir": WORK,
    "services": WORK,  # by SERVICE
    "metrics": WORK,  # what is known of a unit when it is done, and what a trial counts for
}

# Of each of `services`.
SERVICE: Mapping[str, Role] = {
    "name": WORK,
    "command": WORK,
    "script": WORK,
    "env": WORK,
    "ready": WORK,
    "resources": PLACE,
    "on_exit": WORK,
}

# Of `prompt`. An answer that comes by a batch is the same answer.
PROMPT: Mapping[str, Role] = {
    "endpoint": WORK,
    "model": WORK,
    "text": WORK,
    "messages": WORK,
    "system": WORK,
    "answer": WORK,
    "parameters": WORK,
    "mode": PLACE,
}

# What kinds that run have in common. A template is judged by its own table.
EXECUTION: Mapping[str, Role] = {
    "parallelism": RULE,
    "suspend": RULE,
    "active_deadline_seconds": RULE,
    "ttl_seconds_after_finished": RULE,
    "backoff_limit_per_index": RULE,
    "backoff_limit": RULE,
    "max_infra_retries": RULE,
    "max_failed_indexes": RULE,
    "retry": RULE,
    "seed": RULE,  # of jitter; a sweep draws its points by it
    "placement": PLACE,
    "rollout": RULE,
    "on_change": RULE,
    "queue": RULE,  # what runs goes on where it was admitted
    "priority": RULE,
    "success_policy": RULE,
    "failure_policy": RULE,
    "sandbox": RULE,
    "budget": RULE,
    "cache": RULE,
    "depends_on": RULE,  # of when it begins; what it makes of results is UNITS or WORK
    "on_dependency_failed": RULE,
    "notify": RULE,
}

KINDS: Mapping[str, Mapping[str, Role]] = {
    "BatchJob": {
        **EXECUTION,
        "tasks": UNITS,
        "completions": UNITS,
        "completion_mode": RULE,
        "params_from": WORK,  # by the parameters, once they are known
        "template": WORK,
    },
    "Sweep": {
        **EXECUTION,
        "seed": UNITS,
        "search": UNITS,  # its program and command are WORK: they stand in the template
        "trials": UNITS,
        "trials_per_worker": RULE,
        "metrics": RULE,
        "backend": UNITS,
        "wandb": UNITS,  # of one that is applied it never changes
        "template": WORK,
    },
    "TrainingRun": {
        **EXECUTION,
        "nodes": PLACE,
        "ray": PLACE,
        "proc_per_node": PLACE,
        "rdma": PLACE,
        "stages": UNITS,  # each by STAGE
        "checkpoint": WORK,  # by CHECKPOINT
        "params_from": WORK,
        "max_restarts": RULE,
        "progress": RULE,
        "template": WORK,
    },
    "Function": {
        **SURROUNDINGS,
        "provider": PLACE,
        "min_containers": RULE,
        "max_containers": RULE,
        "scaledown_seconds": RULE,
        # Of a server, whose answers are no task's.
        "port": PLACE,
        "command": PLACE,
        "ready": RULE,
        "startup_timeout_seconds": RULE,
        "concurrency": RULE,
    },
}

# A later stage builds on the earlier ones, so what changes one outdates those after it too.
STAGE: Mapping[str, Role] = {
    "name": UNITS,
    "python": WORK,
    "command": WORK,
    "script": WORK,
    "env": WORK,
    "timeout_seconds": RULE,
    "resources": PLACE,
    "image": WORK,
    "volumes": WORK,
    "secrets": WORK,
    "workdir": WORK,
    "services": WORK,
    "placement": PLACE,
    "nodes": PLACE,
    "ray": PLACE,
    "resume_args": RULE,
}
CHECKPOINT: Mapping[str, Role] = {
    "path": WORK,  # programs read it
    "resume": WORK,
    "signal_before_stop_seconds": RULE,
    # How an attempt is begun and looked after; the next one has them.
    "format": RULE,
    "resume_args": RULE,
    "keep": RULE,
    "verify": RULE,
    "mirror": RULE,
}

TEMPLATE_WORK = frozenset(name for name, role in TEMPLATE.items() if role is WORK)
_TEMPLATE_RULES = {name for name, role in TEMPLATE.items() if role is RULE}
_SERVICE_PLACE = tuple(name for name, role in SERVICE.items() if role is not WORK)
_PROMPT_PLACE = tuple(name for name, role in PROMPT.items() if role is not WORK)
_FUNCTION_WORK = frozenset(name for name, role in KINDS["Function"].items() if role is WORK)


# In front of the id that git gives to a directory of a repository.
TREE = "tree:"


@dataclass(frozen=True, slots=True)
class Pins:
    """What the names in a spec stood for when it was applied.

    revision: what `source.path` held (`sha256:...`), the commit of `source.git`, or what its `path`
    held (`tree:...`); empty while nobody knows. function: the content of the Function that the
    template names. models: what the endpoints that it asks call their models; empty where they say
    nothing. params: what `paramsFrom` gave, a JSON object; empty while nobody knows. command: that
    of its sweep, a JSON list with W&B's macros; empty where the template says what runs. prior:
    what `priorTrials` took, JSON as of controllers/trials/prior.py; empty while nobody knows.
    wandb: the configuration that a sweep has at W&B, a JSON object; empty while nobody knows, and
    where its own spec says it.
    results: what `tasks.fromResults` took, JSON as of controllers/depends/results.py; empty while
    nobody knows. indexes: of the rows of a BatchJob, as of controllers/reuse/rows.py; empty where
    each row has its position.

    What a person said of an apply alone: successes that had ended by kept_until_s count whatever
    content they have, and so do those of attempts that were under way at finishing_at_s; in seconds
    since the epoch. rollout: in place of the spec's own, or empty.
    """

    revision: str = ""
    function: str = ""
    models: str = ""
    params: str = ""
    command: str = ""
    prior: str = ""
    wandb: str = ""
    results: str = ""
    indexes: str = ""
    kept_until_s: float | None = None
    finishing_at_s: float | None = None
    rollout: str = ""


NO_PINS = Pins()


def content_of(
    template: Template, pins: Pins = NO_PINS, params_from: ParamsFrom | None = None
) -> str:
    """16 hex digits over what can change a result, a unit's own parameters aside."""
    work = work_of(template, pins.revision)
    if pins.function:
        work["function"] = pins.function
    if pins.models:
        work["models"] = pins.models
    return short_hash(work | _given(params_from, pins))


def given_params(params_from: ParamsFrom | None, pins: Pins) -> dict[str, object] | None:
    """What `paramsFrom` gives each unit; None while it is not known."""
    if params_from is None:
        return {}
    found: dict[str, object] | None = json.loads(pins.params) if pins.params else None
    return found


def _given(params_from: ParamsFrom | None, pins: Pins) -> dict[str, object]:
    """The same as part of a content. Until it is known, its giver's name tells it from all else."""
    if params_from is None:
        return {}
    known = given_params(params_from, pins)
    return {"params": params_from.sweep if known is None else known}


def after(earlier: str, own: str) -> str:
    """The content of work that builds on the content of other work."""
    return short_hash([earlier, own]) if earlier else own


def content_of_models(models: Mapping[str, Mapping[str, str]]) -> str:
    """The same over what endpoints, by name, call their models; empty where all leave it open."""
    said = {name: dict(it) for name, it in models.items() if it}
    return short_hash(said) if said else ""


def content_of_function(spec: FunctionSpec, revision: str) -> str:
    """The same over what a Function gives all tasks that call it."""
    work = spec.model_dump(mode="json", include=set(_FUNCTION_WORK), exclude_defaults=True)
    if spec.source is not None:
        work["source"] = source_told(spec.source, revision)
    return short_hash(work)


def work_of(template: Template, revision: str) -> dict[str, object]:
    """The fields of a template that can change a result, as JSON; its source by what it holds."""
    work = template.model_dump(mode="json", include=set(TEMPLATE_WORK), exclude_defaults=True)
    if template.source is not None:
        work["source"] = source_told(template.source, revision)
    services = work.get("services")
    if isinstance(services, list):
        work["services"] = [
            {key: it for key, it in one.items() if key not in _SERVICE_PLACE} for one in services
        ]
    prompt = work.get("prompt")
    if isinstance(prompt, dict):
        work["prompt"] = {key: it for key, it in prompt.items() if key not in _PROMPT_PLACE}
    return work


def source_told(source: Source, revision: str) -> dict[str, object]:
    """A source by what it holds, as far as that is known, and where the task finds it."""
    document = source.model_dump(mode="json", exclude_defaults=True)
    if source.path is not None:
        # Where it lay is told by its name alone: two checkouts of one repository agree.
        document["path"] = directory_name(source.path)
        if revision:
            for name in ("exclude", "followLinks", "follow_links"):
                document.pop(name, None)
            document["revision"] = revision
    elif revision.startswith(TREE):
        # A directory by what it holds, whichever commit brought that, and wherever it lies there.
        for name in ("ref", "path"):
            document["git"].pop(name, None)
        document["git"]["tree"] = revision
    elif revision:
        document["git"]["ref"] = revision  # as if the commit had been named
    return document


def asked_in(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the Endpoints that a stored spec may call, read without its model."""
    template = document.get("template") or {}
    prompt = template.get("prompt")
    return (prompt["endpoint"],) if prompt else tuple(template.get("endpoints", ()))


def directory_name(path: str) -> str:
    """The last part of `source.path`; empty for `.` and its like, which is named by where it is."""
    last = path.rstrip("/").rpartition("/")[2]
    return "" if last in (".", "..") else last


def template_hash(
    template: Template,
    placement: Placement,
    pins: Pins = NO_PINS,
    params_from: ParamsFrom | None = None,
) -> str:
    """16 hex digits over what affects the sandbox and the work of a run."""
    whole = template.model_dump(mode="json", exclude=_TEMPLATE_RULES, exclude_defaults=True)
    fields: dict[str, object] = {
        "template": whole,
        "providers": [candidate.provider for candidate in placement.candidates],
    }
    if pins.revision:
        fields["revision"] = pins.revision
    if pins.function:
        fields["function"] = pins.function
    if pins.models:
        fields["models"] = pins.models
    return short_hash(fields | _given(params_from, pins))


def combined_hash(own: str, template: Template) -> str:
    """16 hex digits over a template's own hash and all that its Function added to it."""
    whole = template.model_dump(mode="json", exclude=_TEMPLATE_RULES, exclude_defaults=True)
    return short_hash({"own": own, "template": whole})
