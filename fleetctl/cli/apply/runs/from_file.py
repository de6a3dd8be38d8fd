"""Runs another command in the environment of a file's work. Called by run.py."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import UsageError
from fleetctl.manifest.document.short import full_values
from fleetctl.manifest.files.lists import read_manifests
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.specs.kinds.registry import KINDS, kind_called

if TYPE_CHECKING:
    from fleetctl.manifest.files.documents import Document

NAME_CHARACTERS_MAX = 63
_SUFFIX_BYTES = 2
# The fields of the spec, beside its template, that a run takes over.
_KEPT = ("placement", "nodes", "procPerNode", "ray", "rdma", "budget")
_WORK = ("python", "command", "script")


def expand_documents(documents: Sequence[Document]) -> list[Document]:
    """Returns the documents with variables and overlays resolved: the fields that a run leaves out
    may hold the only reference to a variable."""
    from fleetctl.manifest.rendering.render import needs_rendering, rendered_documents

    if needs_rendering(documents):
        return rendered_documents(documents)
    return list(documents)


def with_command(
    documents: Sequence[Document],
    command: Sequence[str],
    stage: str | None,
    name: str | None = None,
) -> tuple[list[Document], str]:
    """Returns the documents with a TrainingRun of this command instead of the object that does
    work, and its key.

    name: of the TrainingRun; else a new one, after the object's. Raises UsageError where there is
    not one such object, and for an unknown stage.
    """
    found: list[str] = []
    made: list[Document] = []
    for document in documents:
        reading = read_manifests(document.path, document.text)
        values = full_values(root.value for root in reading.roots)
        works = [it for it in values if isinstance(it, dict) and _does_work(it)]
        if reading.problems or not works:
            made.append(document)
            continue
        found += [str(it.get("metadata", {}).get("name")) for it in works]
        changed = [_run_of(it, command, stage, name) if it in works else it for it in values]
        made.append(document._replace(text="---\n".join(map(to_yaml, changed))))
        key = f"trainingrun/{changed[values.index(works[0])]['metadata']['name']}"
    if len(found) != 1:
        raise UsageError(
            f"a run needs a file with one object that does work; here are {len(found)}",
            hint="name a file that has one",
        )
    return made, key


def _does_work(value: Mapping[str, object]) -> bool:
    kind = kind_called(value.get("kind"))
    return kind is not None and kind.runs


def _run_of(
    value: dict[str, Any],
    command: Sequence[str],
    stage: str | None,
    name: str | None,
) -> dict[str, Any]:
    spec = value.get("spec") or {}
    about = value.get("metadata") or {}
    own = _stage_of(spec, stage) if stage else {}

    kept = {name: spec[name] for name in _KEPT if name in spec}
    kept |= {name: own.pop(name) for name in _KEPT if name in own}

    template = {**(spec.get("template") or {})}
    of_stage = own.pop("env", None) or {}
    template["env"] = {**(template.get("env") or {}), **of_stage}
    template |= {name: it for name, it in own.items() if name != "name"}
    template = {name: it for name, it in template.items() if name not in _WORK and it != {}}

    if name is None:
        suffix = f"-run-{secrets.token_hex(_SUFFIX_BYTES)}"
        stem = str(about.get("name"))[: NAME_CHARACTERS_MAX - len(suffix)]
        name = f"{stem}{suffix}"
    return {
        **value,
        "kind": KINDS["TrainingRun"].name,
        "metadata": {**about, "name": name},
        "spec": {**kept, "template": {**template, "command": list(command)}},
    }


def _stage_of(spec: Mapping[str, Any], name: str) -> dict[str, Any]:
    stages = {it.get("name"): it for it in spec.get("stages") or () if isinstance(it, dict)}
    if name not in stages:
        known = ", ".join(map(str, stages)) or "none"
        raise UsageError(f"there is no stage `{name}` in this file", hint=f"it has {known}")
    return dict(stages[name])
