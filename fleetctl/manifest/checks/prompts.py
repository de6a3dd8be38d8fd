"""Finds prompts that could never be sent: names of parameters that no row has, invalid schemas, and
providers other than an endpoint.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.checks import spec_parts
from fleetctl.manifest.findings import suggest_name
from fleetctl.manifest.problems import shorten_text
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.prompt import Prompt, names_in
from fleetctl.specs.builtin import PROMPT_PROVIDER
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec

AT: Path = (*spec_parts.TEMPLATE, "prompt")


def find_problems(spec: WorkSpec) -> Iterator[Finding]:
    template = spec_parts.template_of(spec)
    prompt = template.prompt if template is not None else None
    if prompt is None:
        yield from _check_without_prompt(spec)
        return
    if isinstance(spec, TrainingRunSpec):
        yield Finding(AT, ": a training has no prompts", "use `kind: BatchJob`", at_key=True)
        return
    yield from _check_placement(spec)
    if isinstance(spec, BatchJobSpec) and spec.tasks is not None and spec.tasks.files is not None:
        at: Path = ("spec", "tasks", "fromFiles")
        message = ": a prompt is sent to a model, which gets no files"
        yield Finding(at, message, "read the file in a program, with `template.endpoints`")
        return
    yield from _check_names(spec, prompt)
    yield from _check_schema(prompt)


def _check_without_prompt(spec: WorkSpec) -> Iterator[Finding]:
    for part in spec.parts():
        if any(it.provider == PROMPT_PROVIDER for it in part.placement.candidates):
            at = part.placement_at
            message = f" names `{PROMPT_PROVIDER}`, where nothing but prompts is asked"
            yield Finding(at, message, "give `template.prompt`, or name another provider")


def _check_placement(spec: WorkSpec) -> Iterator[Finding]:
    if spec.providers() != (PROMPT_PROVIDER,):
        path: Path = ("spec", "placement")
        message = " names another provider than the prompt's endpoint"
        yield Finding(path, message, "leave it out beside `template.prompt`")
    if spec.sandbox.reuse != 1:
        at: Path = ("spec", "sandbox")
        yield Finding(at, ": a prompt has no sandbox", "leave it out", at_key=True)


def _check_names(spec: WorkSpec, prompt: Prompt) -> Iterator[Finding]:
    """Yields one finding a name: where the prompt uses it, or the first row that does
    not have it.
    """
    if isinstance(spec, BatchJobSpec) and _is_known_later(spec):
        return  # names of rows that another object will provide are not known yet
    known = {name for _, name in spec_parts.list_parameters(spec)}
    reported: set[str] = set()
    for path, text in prompt.texts():
        for name in names_in(text):
            if name in reported:
                continue
            reported.add(name)
            at: Path = (*AT, *path)
            if name not in known:
                message = f" names `${{{shorten_text(name)}}}`, and no parameter is called so"
                hint = (
                    suggest_name(name, sorted(known)) if known else "give `tasks` with parameters"
                )
                escape = "" if hint.endswith("?") else "; `$${...}` stays as it is"
                yield Finding(at, message, hint + escape)
            elif (row := _find_row_without(spec, name)) is not None:
                message = f" has no `{shorten_text(name)}`, which the prompt names"
                yield Finding(row, message, "give every row the same parameters")


def _is_known_later(spec: BatchJobSpec) -> bool:
    given = spec.tasks.from_results if spec.tasks is not None else None
    return spec.params_from is not None or given is not None


def _find_row_without(spec: WorkSpec, name: str) -> Path | None:
    tasks = spec.tasks if isinstance(spec, BatchJobSpec) else None
    for number, item in enumerate((tasks.items if tasks is not None else None) or ()):
        if name not in item:
            return ("spec", "tasks", "items", number)
    return None


def _check_schema(prompt: Prompt) -> Iterator[Finding]:
    """Checks the schema. Without jsonschema here, apply checks it; see providers/endpoint."""
    if prompt.answer is None:
        return
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
        from referencing import Registry
        from referencing.exceptions import Unresolvable
        from referencing.jsonschema import DRAFT202012
    except ModuleNotFoundError:
        return
    try:
        Draft202012Validator.check_schema(prompt.answer)
    except SchemaError as error:
        at: Path = (*AT, "schema", *error.absolute_path)
        message = f": it must be a JSON Schema: {shorten_text(error.message)}"
        yield Finding(at, message, "an object is `{type: object, properties: {...}}`")
        return
    resource = DRAFT202012.create_resource(prompt.answer)
    resolver = Registry().with_resource("", resource).resolver()
    for path, name in _list_references(prompt.answer, (*AT, "schema")):
        try:
            resolver.lookup(name)
        except Unresolvable:
            message = f" is `{shorten_text(name)}`, which the schema does not hold"
            yield Finding(path, message, "nothing is fetched: write it below `$defs`")


def _list_references(part: object, at: Path) -> Iterator[tuple[Path, str]]:
    """Yields each `$ref` of a schema, with its path."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "$ref" and isinstance(value, str):
                yield (*at, key), value
            else:
                yield from _list_references(value, (*at, key))
    elif isinstance(part, list):
        for number, value in enumerate(part):
            yield from _list_references(value, (*at, number))
