"""Files that a source does not hold, as Git LFS stores them elsewhere: a task would read a pointer
of three lines instead of each. Called by predict.py, with the fetched sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fleetctl.apply.predictions.world import PlannedWorld
from fleetctl.common.finding import Finding, Path, Severity
from fleetctl.manifest.document.inner_manifest import AT
from fleetctl.specs.blocks.template import GitSource
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.values.scalars import Spec
from fleetctl.tracking.manifest_sources import source_of
from fleetctl.tracking.source_state import SourceState, names_text

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


def of_source(
    manifest: Manifest,
    spec: Spec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    looked = world.looked.get(manifest.key, SourceState())
    written = manifest.filed or manifest
    source = source_of(written.spec)
    if source is None or not looked.pointers:
        return
    above = ("spec",) if isinstance(written.spec, FunctionSpec) else ("spec", "template")
    if written.made() is not None:
        above = (*AT, *above)
    count = looked.pointer_count
    files = "1 file is" if count == 1 else f"{count:,} files are"
    shown = names_text(looked.pointers)
    message = f": {files} kept by Git LFS, and tasks would get a pointer in place of each: {shown}"
    if source.git is not None:
        at: Path = (*above, "source", "git")
        hint = "add `lfs: true` there, or `lfs: false` where pointers will do"
        meant = _pointers_will_do(source.git)
    else:
        at = (*above, "source", "path")
        meant = False
        hint = (
            "`git lfs pull` in that directory, or leave them out by `exclude`;"
            " of a Source `git.lfs: true` brings them"
        )
    severity = Severity.DOUBT if meant else Severity.NEVER
    yield Finding(at, message, "" if meant else hint, severity)


def _pointers_will_do(source: GitSource) -> bool:
    """Returns true where the manifest has `lfs: false`."""
    return "lfs" in source.model_fields_set
