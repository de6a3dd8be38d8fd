"""The fields of a kind, out of its generated JSON Schema, and their names in other tools: the data
of `explain`. Imports no model.

A field is a SchemaField; lists are stepped through, as in Kubernetes, and a map's own names are
written `<name>`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fleetctl.specs

ANY_NAME = "<name>"  # the key of a map that is the author's own
_FULL_FORM = ("apiVersion", "kind", "metadata", "spec")  # users do not write a status
_ALWAYS = ("apiVersion", "kind", "metadata")
# Documents whose schemas are shipped beside those of kinds.
RENDERED_KINDS = ("Variables", "Overlay")


class SchemaField(NamedTuple):
    """One field. `schema` is as generated; `forms` are the shapes of its value, refs followed."""

    name: str
    schema: Mapping[str, Any]
    forms: tuple[Mapping[str, Any], ...]
    definitions: Mapping[str, Any]
    required: bool

    @property
    def description(self) -> str:
        """Returns the description of the field itself, else of its value."""
        for schema in (self.schema, *self.forms):
            if text := schema.get("description"):
                return str(text)
        return ""

    @property
    def type(self) -> str:
        """Returns `integer`, `[]string`, `map of string`; alternatives with `|` between them."""
        return " | ".join(
            dict.fromkeys(_describe_type(form, self.definitions) for form in self.forms)
        )

    @property
    def default(self) -> str:
        """Returns the default as JSON; "" without one, or if the description names a provider's."""
        value = self.schema.get("default")
        if value is None or value == []:
            return ""
        return json.dumps(value, ensure_ascii=False)

    @property
    def allowed(self) -> tuple[str, ...]:
        """Returns sentences on the limits of a value beyond its type."""
        only = [str(form["const"]) for form in self.forms if "const" in form]
        several = (f"one of {', '.join(only)}",) if len(only) > 1 else ()
        limits = (
            limit for form in self.forms for limit in _list_limits(form, several=bool(several))
        )
        return tuple(dict.fromkeys((*several, *limits)))

    def children(self) -> list[SchemaField]:
        """The fields below, in the order of the schema; through lists."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        objects = list(_list_objects(self.forms, self.definitions))
        for form in objects:
            for name, schema in form.get("properties", {}).items():
                found.setdefault(name, []).append(schema)
            values = form.get("additionalProperties")
            if isinstance(values, dict) and _is_structured(values, self.definitions):
                found.setdefault(ANY_NAME, []).append(values)
        always = [name for name in found if all(name in o.get("required", ()) for o in objects)]
        return [
            _make_field(name, schemas, self.definitions, required=name in always)
            for name, schemas in found.items()
        ]


def schema_text(kind: str) -> str:
    """Returns the JSON Schema of a whole manifest, as it is shipped."""
    path = Path(fleetctl.specs.__path__[0]) / "schemas" / f"{kind.lower()}.json"
    return path.read_text(encoding="utf-8")


def manifest_field(kind: str) -> SchemaField:
    """Returns the whole manifest of a kind as a field."""
    schema = json.loads(schema_text(kind))
    definitions = schema["$defs"]
    if kind not in RENDERED_KINDS:  # the fields of a short file are those of the full one
        schema["properties"] = {key: schema["properties"][key] for key in _FULL_FORM}
        schema["required"] = [*_ALWAYS]
        definitions["Metadata"]["required"] = ["name"]
    described = definitions.get(f"{kind}Spec", schema)
    of_spec = described.get("description", "")
    return SchemaField(
        "",
        {"description": of_spec},
        (schema,),
        definitions,
        True,
    )


def rendered_kind(word: str) -> str:
    """Returns the name of the document (not an object) that a user means; else empty."""
    return next((it for it in RENDERED_KINDS if it.lower() == word.lower()), "")


class FieldMatch(NamedTuple):
    """The end of a path: it leads to `field`, by its first `depth` parts. The next part is not
    there.
    """

    field: SchemaField
    depth: int


def look_up(top: SchemaField, path: Sequence[str]) -> FieldMatch:
    """Follows `path` as far as it goes."""
    here = top
    for depth, part in enumerate(path):
        below = here.children()
        named = {child.name: child for child in below}
        if part not in named and ANY_NAME not in named:
            return FieldMatch(here, depth)
        here = named[part if part in named else ANY_NAME]
    return FieldMatch(here, len(path))


def _make_field(
    name: str,
    schemas: Sequence[Mapping[str, Any]],
    definitions: Mapping[str, Any],
    *,
    required: bool,
) -> SchemaField:
    forms = tuple(form for schema in schemas for form in _list_forms(schema, definitions))
    return SchemaField(
        name,
        schemas[0],
        forms,
        definitions,
        required,
    )


def _list_forms(
    schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    """The alternatives behind `schema`, refs followed, without `null`: that only means absent."""
    if "$ref" in schema:
        yield from _list_forms(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    elif "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _list_forms(one, definitions)
    elif schema.get("type") != "null":
        yield schema


def _list_objects(
    forms: Sequence[Mapping[str, Any]], definitions: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    for form in forms:
        if form.get("type") == "array":
            yield from _list_objects(
                tuple(_list_forms(form.get("items", {}), definitions)), definitions
            )
        elif form.get("type") == "object":
            yield form


def _is_structured(values: Mapping[str, Any], definitions: Mapping[str, Any]) -> bool:
    return any(form.get("type") == "object" for form in _list_forms(values, definitions))


def _describe_type(form: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    sort = form.get("type")
    if sort == "array":
        items = _list_types(form.get("items", {}), definitions)
        if len(items) > 1:
            return f"[]({' | '.join(items)})"
        return "[]" + "".join(items)
    if sort == "object" and "properties" not in form:
        values = form.get("additionalProperties")
        if not isinstance(values, dict):
            values = next(iter(form.get("patternProperties", {}).values()), {})
        return f"map of {' | '.join(_list_types(values, definitions))}"
    if sort is None:
        if isinstance(form.get("const"), str):
            return "string"
        return "any value"
    return str(sort)


def _list_types(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, None]:
    return dict.fromkeys(
        _describe_type(form, definitions) for form in _list_forms(schema, definitions)
    )


def _list_limits(form: Mapping[str, Any], *, several: bool) -> Iterator[str]:
    """Lists limits. several: the single values of all forms are listed together."""
    if "enum" in form:
        yield "one of " + ", ".join(str(value) for value in form["enum"])
    if "const" in form and not several:
        yield f"only {form['const']}"
    for key, words in _BOUNDS:
        value = form.get(key)
        if value is not None and value not in _WIDEST:
            yield f"{words} {value}"
    if "pattern" in form:
        yield f"matching {form['pattern']}"


_BOUNDS = (
    ("minimum", "at least"),
    ("exclusiveMinimum", "more than"),
    ("maximum", "at most"),
    ("minItems", "entries: at least"),
    ("maxItems", "entries: at most"),
    ("maxLength", "characters: at most"),
)
# The widest whole numbers that a store takes; no user reaches them.
_WIDEST = (2**31 - 1, 2**53 - 1)


class ForeignField(NamedTuple):
    """The field `name` of another tool, for a field of ours that has the same meaning. Where it
    has the same name too, it shows the origin alone.
    """

    tool: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} ({self.tool})"


_JOB = "Kubernetes Job"
_JOBSET = "JobSet"
_KATIB = "Katib"
_TRAINER = "Kubeflow Trainer"
_SKYPILOT = "SkyPilot"
_DSTACK = "dstack"
_WANDB = "W&B"

ORIGINS: dict[str, tuple[ForeignField, ...]] = {
    "activeDeadlineSeconds": (
        ForeignField(_JOB, "activeDeadlineSeconds"),
        ForeignField(_DSTACK, "max_duration"),
    ),
    "anyOf": (ForeignField(_SKYPILOT, "any_of"),),
    "backoffLimit": (ForeignField(_JOB, "backoffLimit"),),
    "backoffLimitPerIndex": (
        ForeignField(_JOB, "backoffLimitPerIndex"),
        ForeignField(_SKYPILOT, "max_restarts_on_errors"),
    ),
    "command": (ForeignField(_JOB, "command and args"),),
    "completionMode": (ForeignField(_JOB, "completionMode"),),
    "completions": (ForeignField(_JOB, "completions"),),
    "deletionPolicy": (ForeignField("Crossplane", "deletionPolicy"),),
    "env": (ForeignField(_JOB, "env"), ForeignField(_SKYPILOT, "envs")),
    "exclude": (ForeignField(_SKYPILOT, ".skyignore"),),
    "failurePolicy": (
        ForeignField(_JOB, "podFailurePolicy"),
        ForeignField(_JOBSET, "failurePolicy"),
    ),
    "gpu": (
        ForeignField(_SKYPILOT, "accelerators"),
        ForeignField(_DSTACK, "gpu"),
        ForeignField("Modal", "gpu"),
    ),
    "image": (ForeignField(_JOB, "image"), ForeignField(_SKYPILOT, "image_id")),
    "maxFailedIndexes": (
        ForeignField(_JOB, "maxFailedIndexes"),
        ForeignField(_KATIB, "maxFailedTrialCount"),
    ),
    "maxRestarts": (ForeignField(_JOBSET, "maxRestarts"),),
    "nodes": (
        ForeignField(_TRAINER, "numNodes"),
        ForeignField(_SKYPILOT, "num_nodes"),
        ForeignField(_DSTACK, "nodes"),
    ),
    "onExitCodes": (ForeignField(_JOB, "onExitCodes"),),
    "ordered": (ForeignField(_SKYPILOT, "ordered"),),
    "parallelism": (ForeignField(_JOB, "parallelism"), ForeignField(_KATIB, "parallelTrialCount")),
    "script": (ForeignField(_SKYPILOT, "run"), ForeignField(_DSTACK, "commands")),
    "search": (ForeignField(_WANDB, "the whole sweep configuration"),),
    "searchFrom": (ForeignField(_WANDB, "the whole sweep configuration"),),
    "secrets": (ForeignField(_JOB, "envFrom"), ForeignField("Modal", "secrets")),
    "successPolicy": (ForeignField(_JOB, "successPolicy"),),
    "suspend": (ForeignField(_JOB, "suspend"),),
    "template": (ForeignField(_JOB, "template"), ForeignField(_KATIB, "trialTemplate")),
    "terminationGracePeriodSeconds": (ForeignField(_JOB, "terminationGracePeriodSeconds"),),
    "trials": (ForeignField(_WANDB, "run_cap"), ForeignField(_KATIB, "maxTrialCount")),
    "ttlSecondsAfterFinished": (ForeignField(_JOB, "ttlSecondsAfterFinished"),),
    "volumes": (ForeignField(_JOB, "volumeMounts"), ForeignField(_SKYPILOT, "file_mounts")),
}

# In a search, where all else is W&B's.
_OURS = frozenset({"priorTrials", "sampler"})


def list_origins(path: tuple[str, ...]) -> tuple[str, ...]:
    """Returns `parallelTrialCount (Katib)` and the like, for the field at this path; empty for
    most.
    """
    *above, name = path
    if above[-1:] == ["search"] and name not in _OURS:
        return (str(ForeignField(_WANDB, name)),)
    if above and above[-1] == "metadata":
        return ()
    return tuple(str(one) for one in ORIGINS.get(name, ()))
