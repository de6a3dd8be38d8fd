"""What is known of a source when its manifest is proposed, and the annotations that keep it with
its object. Read by sources.py, commits.py and whoever proposes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.tracking.annotations import APART, COPY, ORIGIN, REVISION

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

COMMIT_SHOWN = 7
FILES_SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class Looked:
    """What a source is now. revision: as in fleetctl.specs.content.Pins. origin: the directory of a
    `source.path`. files: of that, relative path -> digest. copy: the digest of all that a copy of
    the directory holds, or the commit of a repository. apart: files of the directory that its
    manifest was read from, relative. warnings: sentences; notes: those that only `plan -v` shows.
    """

    revision: str = ""
    origin: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    copy: str = ""
    apart: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def held(self) -> str:
        """What runs get."""
        return self.copy or self.revision

    def annotations(self) -> dict[str, str]:
        """As they are kept with an object; without those that say nothing."""
        copy = "" if self.copy == self.revision else self.copy
        apart = json.dumps(self.apart) if self.apart else ""
        found = {REVISION: self.revision, ORIGIN: self.origin, COPY: copy, APART: apart}
        return {key: text for key, text in found.items() if text}


def kept_in(annotations: Mapping[str, str]) -> Looked:
    """The same as it was when an object was applied."""
    return Looked(
        annotations.get(REVISION, ""),
        annotations.get(ORIGIN, ""),
        copy=copy_in(annotations),
        apart=apart_in(annotations),
    )


def copy_in(annotations: Mapping[str, str]) -> str:
    """The copy, or the commit, that runs get; empty while nobody knows."""
    return annotations.get(COPY) or annotations.get(REVISION, "")


def apart_in(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Files of the source that its manifest was read from, relative."""
    found = json.loads(annotations.get(APART) or "[]")
    return tuple(map(str, found))


def read_in(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The same, absolute."""
    return tuple(os.path.join(annotations.get(ORIGIN, ""), it) for it in apart_in(annotations))


def inside(files: Sequence[str], origin: str) -> tuple[str, ...]:
    """Those that lie in a directory, relative to it; by their names, and by where links lead."""
    real = map(os.path.realpath, files)
    found = {*_below(origin, files), *_below(os.path.realpath(origin), real)}
    return tuple(sorted(found))


def _below(directory: str, files: Iterable[str]) -> Iterator[str]:
    start = os.path.join(os.path.normpath(directory), "")
    return (it[len(start) :] for it in map(os.path.normpath, files) if it.startswith(start))


def where(manifest: Manifest) -> str:
    return f"{manifest.path}:{manifest.line}: {manifest.key}"


def short(revision: str) -> str:
    return revision.rpartition(":")[2][:COMMIT_SHOWN] or "unknown"


def files_text(names: Sequence[str]) -> str:
    """`3 files: train.py, model.py, …`."""
    shown = ", ".join(names[:FILES_SHOWN_MAX])
    rest = ", …" if len(names) > FILES_SHOWN_MAX else ""
    return f"{len(names):,} file{'s'[: len(names) != 1]}: {shown}{rest}"
