"""The content of a unit: the one table that states, field by field, the effect of a change of a
spec on finished work. Read by controllers for what is outdated, by the cache for what is equal, and
by `template_hash` for what a live run is replaced for. Pure.

A field that no table holds fails tests/unit/specs/test_specs_content.py; one whose effect no
contract test observes, tests/contracts/test_field_effects.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from fleetctl.specs.values.hashing import short_hash

if TYPE_CHECKING:
    from fleetctl.specs.blocks.common import ParamsFrom, PlacementSpec
    from fleetctl.specs.blocks.template import Source, Template
    from fleetctl.specs.kinds.function import FunctionSpec


class FieldRole(Enum):
    """The effect of a change of a field on finished and live work."""

    UNITS = "units"  # which units there are, or their parameters: those that differ are new work
    WORK = "work"  # changes a unit's outcome: finished ones are outdated, live ones are replaced
    PLACE = "place"  # changes a run's surroundings: live ones are replaced, finished ones stay
    RULE = "rule"  # neither: limits, policies, names


UNITS = FieldRole.UNITS
WORK = FieldRole.WORK
PLACE = FieldRole.PLACE
RULE = FieldRole.RULE

# The surroundings of a task, in a sandbox or in a container of a Function.
SURROUNDINGS: Mapping[str, FieldRole] = {
    "image": WORK,
    "source": WORK,
    "resources": PLACE,
    "env": WORK,
    "secrets": WORK,
    "volumes": WORK,
}

TEMPLATE: Mapping[str, FieldRole] = {
    **SURROUNDINGS,
    "python": WORK,
    "command": WORK,
    "script": WORK,
    "network": WORK,
    "endpoints": WORK,  # by their names, and by their models' own names
    "prompt": WORK,  # by PROMPT
    "runtime": WORK,
    "function": WORK,  # by the Function's content, once that is known; not by its name
    "timeout_seconds": RULE,
    "termination_grace_period_seconds": RULE,
    "workdir": WORK,
    "services": WORK,  # by SERVICE
    "kubernetes": WORK,  # by POD
    "outputs": WORK,  # what is kept of a finished unit: other files than those that are there
    "metrics": WORK,  # the metrics that are known of a finished unit, and the value of a trial
}

# The fields of each entry of `services`.
SERVICE: Mapping[str, FieldRole] = {
    "name": WORK,
    "command": WORK,
    "script": WORK,
    "env": WORK,
    "ready": WORK,
    "resources": PLACE,
    "on_exit": WORK,
}

# Of `prompt`. An answer that comes by a batch is the same answer.
PROMPT: Mapping[str, FieldRole] = {
    "endpoint": WORK,
    "model": WORK,
    "text": WORK,
    "messages": WORK,
    "system": WORK,
    "answer": WORK,
    "parameters": WORK,
    "mode": PLACE,
}

# The fields of `kubernetes`: the data that work reads is its content; its machine and account are
# not.
POD: Mapping[str, FieldRole] = {
    "service_account": PLACE,
    "kueue_queue": PLACE,
    "priority_class": PLACE,
    "runtime_class": PLACE,
    "node_selector": PLACE,
    "affinity": PLACE,
    "topology_spread": PLACE,
    "tolerations": PLACE,
    "pod_labels": PLACE,
    "pod_annotations": PLACE,
    "security_context": PLACE,
    "container_security_context": PLACE,
    "requests": PLACE,
    "extra_resources": PLACE,
    "config_maps": WORK,
    "secrets": WORK,
    "init_containers": WORK,
    "resource_claims": PLACE,
    "image_pull_secrets": PLACE,
    "shared_memory": PLACE,
    "pod_template": PLACE,
}

# The fields that running kinds share. A template is judged by its own table.
EXECUTION: Mapping[str, FieldRole] = {
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
    "queue": RULE,  # running work goes on where it was admitted
    "priority": RULE,
    "success_policy": RULE,
    "failure_policy": RULE,
    "sandbox": RULE,
    "budget": RULE,
    "cache": RULE,
    # changes the time of its start; parameters made of results are UNITS or WORK
    "depends_on": RULE,
    "on_dependency_failed": RULE,
    "notify": RULE,
}

KINDS: Mapping[str, Mapping[str, FieldRole]] = {
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
        "wandb": UNITS,  # never changes once its object is applied
        "template": WORK,
    },
    "TrainingRun": {
        **EXECUTION,
        "nodes": PLACE,
        "ray": PLACE,
        "proc_per_node": PLACE,
        "rdma": PLACE,
        "stages": UNITS,  # each by STAGE
        "groups": UNITS,  # each by GROUP
        "primary": RULE,
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
        # The fields of a server, whose answers are no task's.
        "port": PLACE,
        "command": PLACE,
        "ready": RULE,
        "startup_timeout_seconds": RULE,
        "concurrency": RULE,
    },
}

# A later stage builds on the earlier ones, so a changed stage outdates the later ones too.
STAGE: Mapping[str, FieldRole] = {
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
    "kubernetes": WORK,  # by POD, laid over the template's
    "placement": PLACE,
    "nodes": PLACE,
    "ray": PLACE,
    "resume_args": RULE,
}
GROUP: Mapping[str, FieldRole] = {
    **STAGE,
    "port": PLACE,  # of all groups: each knows the addresses of the others
    "restart_policy": RULE,
}
CHECKPOINT: Mapping[str, FieldRole] = {
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
_POD_PLACE = tuple(name for name, role in POD.items() if role is not WORK)
_PROMPT_PLACE = tuple(name for name, role in PROMPT.items() if role is not WORK)
_FUNCTION_WORK = frozenset(name for name, role in KINDS["Function"].items() if role is WORK)


# In front of the id that git gives to a directory of a repository.
TREE = "tree:"


@dataclass(frozen=True, slots=True)
class Pins:
    """The values of the names in a spec when it was applied.

    revision: content of `source.path` (`sha256:...`), the commit of `source.git`, or the content of
    its `path` (`tree:...`); empty while unknown. function: the content of the Function that the
    template names. models: the models' names at the endpoints that it uses; empty if the endpoints
    have no such names. params: the result of `paramsFrom`, a JSON object; empty while unknown.
    command: the command of its sweep, a JSON list with W&B's macros; empty if the template has the
    command. prior: the result of `priorTrials`, JSON as in controllers/trials/prior.py; empty while
    unknown. wandb: the configuration that a sweep has at W&B, a JSON object; empty while unknown,
    and if its own spec has it. results: the result of `tasks.fromResults`, JSON as in
    controllers/depends/results.py; empty while unknown. indexes: indexes of the rows of a BatchJob,
    as in controllers/reuse/row_matching.py; empty if each row has its position.

    Options of a single apply: successes that had ended by kept_until_s count whatever content they
    have, and so do those of attempts that were under way at finishing_at_s; in seconds since the
    epoch. rollout: replaces the spec's own, or empty.
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
    template: Template,
    pins: Pins = NO_PINS,
    params_from: ParamsFrom | None = None,
) -> str:
    """Returns 16 hex digits over everything that can change a result, except a unit's own
    parameters.
    """
    work = work_of(template, pins.revision)
    if pins.function:
        work["function"] = pins.function
    if pins.models:
        work["models"] = pins.models
    return short_hash(work | _build_given_content(params_from, pins))


def read_given_params(params_from: ParamsFrom | None, pins: Pins) -> dict[str, object] | None:
    """Returns the parameters that `paramsFrom` gives each unit; None while unknown."""
    if params_from is None:
        return {}
    found: dict[str, object] | None = json.loads(pins.params) if pins.params else None
    return found


def _build_given_content(params_from: ParamsFrom | None, pins: Pins) -> dict[str, object]:
    """Returns the same as part of a content. While it is unknown, the name of its object stands for
    it.
    """
    if params_from is None:
        return {}
    known = read_given_params(params_from, pins)
    return {"params": params_from.sweep if known is None else known}


def chain_content(earlier: str, own: str) -> str:
    """The content of work that builds on the content of other work."""
    return short_hash([earlier, own]) if earlier else own


def content_of_models(models: Mapping[str, Mapping[str, str]]) -> str:
    """Returns the hash over the models' own names at each endpoint, by its name; empty if all leave
    them open.
    """
    said = {name: dict(it) for name, it in models.items() if it}
    if said:
        return short_hash(said)
    return ""


def content_of_function(spec: FunctionSpec, revision: str) -> str:
    """Returns the hash over the fields that a Function gives all tasks that call it."""
    work = spec.model_dump(
        mode="json",
        include=set(_FUNCTION_WORK),
        exclude_defaults=True,
    )
    if spec.source is not None:
        work["source"] = source_told(spec.source, revision)
    return short_hash(work)


def work_of(template: Template, revision: str) -> dict[str, object]:
    """Returns the fields of a template that can change a result, as JSON; its source by its
    content.
    """
    work = template.model_dump(
        mode="json",
        include=set(TEMPLATE_WORK),
        exclude_defaults=True,
    )
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
    pod = work.pop("kubernetes", None)
    if isinstance(pod, dict) and (own := {k: it for k, it in pod.items() if k not in _POD_PLACE}):
        work["kubernetes"] = own
    return work


def source_told(source: Source, revision: str) -> dict[str, object]:
    """Returns a source by its content, as far as that is known, and the path where the task finds
    it.
    """
    document = source.model_dump(mode="json", exclude_defaults=True)
    if source.path is not None:
        # The path is represented by its name alone: two checkouts of a repository agree.
        document["path"] = directory_name(source.path)
        if revision:
            for name in ("exclude", "followLinks", "follow_links"):
                document.pop(name, None)
            document["revision"] = revision
    elif revision.startswith(TREE):
        # A directory counts by its content, whichever commit brought that, and wherever it lies
        # there.
        for name in ("ref", "path"):
            document["git"].pop(name, None)
        document["git"]["tree"] = revision
    elif revision:
        document["git"]["ref"] = revision  # as if the commit had been named
    return document


def list_called_endpoints(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the Endpoints that a stored spec may call, read without its model."""
    template = document.get("template") or {}
    prompt = template.get("prompt")
    if prompt:
        return (prompt["endpoint"],)
    return tuple(template.get("endpoints", ()))


def directory_name(path: str) -> str:
    """The last part of `source.path`; empty for `.` and its like, which is named by where it is."""
    last = path.rstrip("/").rpartition("/")[2]
    if last in (".", ".."):
        return ""
    return last


def template_hash(
    template: Template,
    placement: PlacementSpec,
    pins: Pins = NO_PINS,
    params_from: ParamsFrom | None = None,
) -> str:
    """Returns 16 hex digits over the fields that affect the sandbox and the work of a run."""
    whole = template.model_dump(
        mode="json",
        exclude=_TEMPLATE_RULES,
        exclude_defaults=True,
    )
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
    return short_hash(fields | _build_given_content(params_from, pins))


def combined_hash(own: str, template: Template) -> str:
    """Returns 16 hex digits over a template's own hash and all that its Function added."""
    whole = template.model_dump(
        mode="json",
        exclude=_TEMPLATE_RULES,
        exclude_defaults=True,
    )
    return short_hash({"own": own, "template": whole})
