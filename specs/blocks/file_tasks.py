"""Tasks whose input is a file: `tasks.fromFiles` as a user writes it, and the files that were found
when the manifest was applied. Pure.

A task stands for the content of its file. The name is for users alone, unless the program sees it.
A task of a file in a volume sees its path, which stands for it with the content; or with size and
time of change, where the content was not read.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field, JsonValue, StringConstraints, model_validator

from fleetctl.specs.values.scalars import Name, NonEmptyText, PositiveCount, Spec

FILE, FILES = "file", "files"  # the parameter of a task of one file, and of several
NAME, CONTENT = "name", "sha256"  # fields of its value; the task gets a path in place of both
# Of the value of a file in a volume, which is not brought.
VOLUME, PATH, DIGEST = "volume", "path", "digest"
_SUFFIX = re.compile(r"(?:\.[A-Za-z0-9]{1,8})?\.[A-Za-z0-9]{1,8}")
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".lz4")  # behind the suffix that programs go by
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class FromFiles(Spec):
    """Files, found and read when the manifest is applied."""

    glob: NonEmptyText = Field(
        description="Files, relative to the manifest's own; `**` stands for any directories."
    )
    volume: Name | None = Field(
        default=None,
        description="Volume that has the files, which the template mounts; default: this machine.",
    )
    chunk: PositiveCount | None = Field(
        default=None, description="Files per task, given as `files`; default: a task a file."
    )
    names: bool = Field(
        default=False,
        description="Whether tasks see files' names; a rename is another task then; default false.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"glob": value}
        return value

    @model_validator(mode="after")
    def _shows_names_once(self) -> FromFiles:
        if self.volume is not None and self.names:
            raise ValueError("tasks see the paths of files in a volume anyway; leave `names` out")
        return self


class FoundFile(Spec):
    """A file as it was when the manifest was applied."""

    path: NonEmptyText = Field(description="Its path below `base`.")
    sha256: Digest | None = Field(default=None, description="Its content; not of a volume's file.")
    digest: Digest | None = Field(
        default=None, description="Content of a volume's file, where it was read."
    )
    bytes: int = Field(ge=0, description="Its size.")
    modified: float | None = Field(
        default=None, description="Time of its last change in a volume, in seconds since the epoch."
    )


class FileTasks(Spec):
    """The files of all tasks, in the order of their paths."""

    base: NonEmptyText = Field(description="The directory that they lie below, as it was written.")
    found: tuple[FoundFile, ...] = Field(
        default=(), description="The files; of a volume none before it has been listed."
    )
    volume: Name | None = Field(
        default=None, description="Volume that has the files; default: they are kept contents."
    )
    glob: NonEmptyText | None = Field(
        default=None, description="Pattern by which a volume is listed again; of a volume alone."
    )
    chunk: PositiveCount | None = Field(default=None, description="Files per task; default: one.")
    names: bool = Field(
        default=False, description="Whether tasks see the files' names; default false."
    )

    @model_validator(mode="after")
    def _require_one_origin(self) -> FileTasks:
        if (self.volume is None) != (self.glob is None):
            raise ValueError("`volume` and `glob` go together")
        if self.volume is None and not self.found:
            raise ValueError("`found` needs at least one file")
        for it in self.found:
            if (it.sha256 is None) != (self.volume is not None):
                raise ValueError(
                    f"`{it.path}` needs `sha256` where there is no `volume`, and there alone"
                )
            if it.digest is not None and self.volume is None:
                raise ValueError(f"`{it.path}` has `digest`, which is of a volume's file alone")
        return self

    def count(self) -> int | None:
        """Returns the number of tasks; None before a volume has been listed."""
        if not self.found:
            return None
        return -(-len(self.found) // (self.chunk or 1))

    def of(self, index: int) -> tuple[FoundFile, ...]:
        """Returns the files of a task, by the position of its row."""
        size = self.chunk or 1
        return self.found[index * size : (index + 1) * size]

    def params(self, index: int) -> dict[str, JsonValue]:
        """Returns the parameters of a task: what its program finds, without a name that it does
        not see.
        """
        values: list[JsonValue] = [self._value(it, at) for at, it in enumerate(self.of(index))]
        if self.chunk is None:
            return {FILE: values[0]}
        return {FILES: values}

    def shown(self, it: FoundFile) -> str:
        """Returns the path as users know it."""
        if self.base == ".":
            return it.path
        return f"{self.base.rstrip('/')}/{it.path}"

    def _value(self, it: FoundFile, at: int) -> JsonValue:
        """Returns all that a task depends on of a file."""
        if self.volume is None:
            return {NAME: self._name_in_task(it, at), CONTENT: it.sha256}
        known: dict[str, JsonValue] = {VOLUME: self.volume, PATH: it.path}
        if it.digest is not None:
            return known | {DIGEST: it.digest}
        modified: dict[str, JsonValue] = {} if it.modified is None else {"modified": it.modified}
        return known | {"bytes": it.bytes} | modified

    def _name_in_task(self, it: FoundFile, at: int) -> str:
        if self.names:
            return it.path
        return f"{'file' if self.chunk is None else at + 1}{suffix_of(it.path)}"


def suffix_of(path: str) -> str:
    """Returns the end of a name that programs go by: `.txt`, `.tar.gz`; empty without one."""
    stem, dot, last = path.rpartition("/")[2].rpartition(".")
    if not stem or not dot or not _SUFFIX.fullmatch(f".{last}"):
        return ""
    inner = suffix_of(stem) if f".{last}" in _PACKED else ""
    return f"{inner}.{last}"
