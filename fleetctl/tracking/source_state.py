"""The facts on a source when its manifest is proposed, and the annotations that store them with its
object. Read by manifest_sources.py, commits.py and callers that propose.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.tracking.annotations import APART, BESIDE, COPY, ORIGIN, REVISION

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

COMMIT_SHOWN = 7
FILES_SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class SourceState:
    """The present state of a source. revision: as in fleetctl.specs.content.Pins. origin: the
    directory of a `source.path`. files: of the origin, relative path -> digest. copy: the digest of
    all files that a copy of the directory holds, or the commit of a repository. apart: files of the
    directory that its manifest was read from, relative. pointers: files that Git LFS stores and
    tasks would not get, the first of pointer_count. warnings: sentences; notes: shown by `plan -v`
    alone. beside: of a commit, a digest of its content without the manifest's own file.
    """

    revision: str = ""
    origin: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    copy: str = ""
    apart: tuple[str, ...] = ()
    pointers: tuple[str, ...] = ()
    pointer_count: int = 0
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    beside: str = ""

    @property
    def held(self) -> str:
        """Returns the source that runs get."""
        return self.copy or self.revision

    def annotations(self) -> dict[str, str]:
        """Returns the annotations as they are stored with an object; without empty ones."""
        copy = "" if self.copy == self.revision else self.copy
        apart = json.dumps(self.apart) if self.apart else ""
        found = {REVISION: self.revision, ORIGIN: self.origin, COPY: copy, APART: apart}
        found[BESIDE] = self.beside
        return {key: text for key, text in found.items() if text}


def load_source_state(annotations: Mapping[str, str]) -> SourceState:
    """Returns the state as it was when an object was applied."""
    return SourceState(
        annotations.get(REVISION, ""),
        annotations.get(ORIGIN, ""),
        copy=copy_in(annotations),
        apart=apart_in(annotations),
        beside=annotations.get(BESIDE, ""),
    )


def copy_in(annotations: Mapping[str, str]) -> str:
    """Returns the copy, or the commit, that runs get; empty while unknown."""
    return annotations.get(COPY) or annotations.get(REVISION, "")


def apart_in(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Returns files of the source that its manifest was read from, relative."""
    found = json.loads(annotations.get(APART) or "[]")
    return tuple(map(str, found))


def read_in(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the same files, absolute."""
    return tuple(os.path.join(annotations.get(ORIGIN, ""), it) for it in apart_in(annotations))


def list_inside(files: Sequence[str], origin: str) -> tuple[str, ...]:
    """Returns the files that lie in a directory, relative to it; by their names, and by where links
    lead."""
    real = map(os.path.realpath, files)
    found = {*_list_below(origin, files), *_list_below(os.path.realpath(origin), real)}
    return tuple(sorted(found))


def _list_below(directory: str, files: Iterable[str]) -> Iterator[str]:
    start = os.path.join(os.path.normpath(directory), "")
    return (it[len(start) :] for it in map(os.path.normpath, files) if it.startswith(start))


def format_position(manifest: Manifest) -> str:
    return f"{manifest.path}:{manifest.line}: {manifest.key}"


def shorten_revision(revision: str) -> str:
    return revision.rpartition(":")[2][:COMMIT_SHOWN] or "unknown"


def names_text(names: Sequence[str]) -> str:
    """Returns `a.bin, b.bin, …`."""
    return ", ".join(names[:FILES_SHOWN_MAX]) + (", …" if len(names) > FILES_SHOWN_MAX else "")


def files_text(names: Sequence[str]) -> str:
    """Returns `3 files: train.py, model.py, …`."""
    return f"{len(names):,} file{'s'[: len(names) != 1]}: {names_text(names)}"
