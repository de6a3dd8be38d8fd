"""The manifest inside a manifest: the object that a Schedule makes each time, read and checked as a
manifest of its own. Called by loader.py, before the outer one is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.files.includes import IncludedFiles, include_files
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import kind_called
from fleetctl.specs.values.scalars import Spec

AT: Path = ("spec", "template")
_UNNAMED = Metadata(name="scheduled")

Read = Callable[[dict[str, Any], list[Finding]], Spec | None]


@dataclass(frozen=True, slots=True)
class InnerManifest:
    """An inner manifest. spec: None if it is absent or wrong. findings, included: by the paths of
    the outer document.
    """

    included: IncludedFiles
    spec: Spec | None = None
    findings: list[Finding] = field(default_factory=list)

    def without_echo(self, findings: list[Finding]) -> list[Finding]:
        """Returns the findings of the outer document, without those that its model repeats about a
        wrong inner one.
        """
        if not self.findings:
            return findings
        return [it for it in findings if it.where != AT or not it.what.startswith(": `spec")]


def inner_of(
    data: dict[str, Any],
    document: Document,
    read: Read,
) -> InnerManifest | None:
    """Returns the inner manifest of a document; None for a document without one. Files that the
    inner one names become part of `data`.

    read: validates a spec by the model of its kind, and returns its findings.
    """
    inner = _inner_document(data)
    if not inner:
        # Where the inner one cannot be read, the outer model reports the fault.
        if inner is None:
            return None
        return InnerManifest(IncludedFiles())
    included = include_files(inner, document)
    found = [*included.findings]
    work = read(inner, found)
    included.moved = {(*AT, *path): it for path, it in included.moved.items()}
    included.findings = []
    return InnerManifest(included, work, list(move_findings(found)))


def inner_again(data: dict[str, Any], read: Read) -> InnerManifest | None:
    """Returns the inner manifest of a document that contains its files already; None for a
    document without one.
    """
    inner = _inner_document(data)
    if not inner:
        return None
    found: list[Finding] = []
    work = read(inner, found)
    return InnerManifest(IncludedFiles(), work, list(move_findings(found)))


def _inner_document(data: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the kind and spec of the inner manifest; empty if they cannot be read, None for a
    document without an inner one.
    """
    kind = kind_called(data.get("kind"))
    spec = data.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if kind is None or not kind.starts or not isinstance(template, dict):
        return None
    made = kind_called(template.get("kind"))
    if made is None or not made.runs or not isinstance(template.get("spec"), dict):
        return {}
    return {"kind": made.name, "spec": template["spec"]}


def move_findings(found: Iterable[Finding]) -> Iterator[Finding]:
    """Moves findings in the inner manifest to the paths of the outer one."""
    for it in found:
        yield replace(it, where=(*AT, *it.where), about=(*AT, *it.subject))


def metadata_for(outer: Metadata) -> Metadata:
    """Returns metadata for the check of the inner manifest: its names come later."""
    return _UNNAMED.model_copy(update={"namespace": outer.namespace})
