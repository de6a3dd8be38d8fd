"""The manifest inside a manifest: what a Schedule makes each time, read and checked as one of its
own. Called by loader.py, before the outer one is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.files.includes import Included, include
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.problems import Path
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import kind_called
from fleetctl.specs.values.scalars import Spec

AT: Path = ("spec", "template")
_UNNAMED = Metadata(name="scheduled")

Read = Callable[[dict[str, Any], list[Finding]], Spec | None]


@dataclass(frozen=True, slots=True)
class Inner:
    """spec: None where there is none, or it is wrong. findings, included: by the paths of the
    outer document.
    """

    included: Included
    spec: Spec | None = None
    findings: list[Finding] = field(default_factory=list)

    def without_echo(self, findings: list[Finding]) -> list[Finding]:
        """Those of the outer document, less what its model says again of a wrong inner one."""
        if not self.findings:
            return findings
        return [it for it in findings if it.path != AT or not it.problem.startswith(": `spec")]


def inner_of(data: dict[str, Any], document: Document, read: Read) -> Inner | None:
    """None of a document that has no other one in it. Files that the inner one names become part of
    `data`. read: a spec by the model of its kind, and what is wrong with it.
    """
    kind, spec = kind_called(data.get("kind")), data.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if kind is None or not kind.starts or not isinstance(template, dict):
        return None
    made = kind_called(template.get("kind"))
    if made is None or not made.runs or not isinstance(template.get("spec"), dict):
        return Inner(Included())  # the outer model says what is wrong
    inner = {"kind": made.name, "spec": template["spec"]}
    included = include(inner, document)
    found = [*included.findings]
    work = read(inner, found)
    included.moved = {(*AT, *path): it for path, it in included.moved.items()}
    included.findings = []
    return Inner(included, work, list(moved_in(found)))


def moved_in(found: Iterable[Finding]) -> Iterator[Finding]:
    """What is found in the inner one, by the paths of the outer."""
    for it in found:
        yield replace(it, path=(*AT, *it.path), subject=(*AT, *it.subject))


def metadata_for(outer: Metadata) -> Metadata:
    """What the inner one is checked with: its names come later."""
    return _UNNAMED.model_copy(update={"namespace": outer.namespace})
