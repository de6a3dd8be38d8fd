"""The files of tasks as screens show them: by name, where a task has a content. Pure.

Tasks stand for contents (`tasks.fromFiles`), and names are of the present spec alone: after a
rename a finished task is shown with the new name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from fleetctl.controllers.vocabulary.bookkeeping import INDEXES
from fleetctl.views.objects import View, as_mapping, parse_document

if TYPE_CHECKING:
    from fleetctl.stores.read.rows import RunRow
    from fleetctl.views.tasks import Task

FILE, FILES = "file", "files"  # parameters of a task
_MARK = '"files":'  # in the text of a spec, which may hold a million rows in place of files
NAMES_SHOWN = 2  # of a task's files, in a cell
DIGEST_SHOWN = 12  # of a content that the present spec does not name


class FileNames:
    """The names of the files of an object's tasks."""

    def __init__(self, files: Mapping[str, object], indexes: str) -> None:
        base = str(files.get("base", "."))
        found = files.get("found")
        chunk = files.get("chunk")
        rows = [as_mapping(it) for it in (found if isinstance(found, list) else ())]
        prefix = "" if base == "." else f"{base.rstrip('/')}/"
        self._shown = [f"{prefix}{it.get('path')}" for it in rows]
        self._digests = [_identity_of(it) for it in rows]
        self._size = chunk if isinstance(chunk, int) else 1
        self.parameter = FILE if chunk is None else FILES
        self._rows = _rows_by_index(indexes)

    @classmethod
    def of(cls, seen: View) -> FileNames | None:
        """Returns the names; None for an object whose tasks have no files."""
        if seen.kind.name != "BatchJob" or _MARK not in seen.spec_text():
            return None
        files = as_mapping(as_mapping(seen.spec().get("tasks")).get("files"))
        if files:
            return cls(files, seen.resource.annotations.get(INDEXES, ""))
        return None

    def name_tasks(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Yields the tasks with the names of their files as parameters."""
        return (
            it._replace(run=self.name_run(it.run), older=tuple(map(self.name_run, it.older)))
            for it in tasks
        )

    def name_run(self, run: RunRow) -> RunRow:
        """Returns the run with the names; also of a task that has not begun."""
        return run._replace(params=self.name_params(run.index, run.params))

    def name_params(self, index: int, text: str) -> str:
        """Returns the parameters of a task, JSON, with the names of its files."""
        params = parse_document(text)
        known = params.get(FILE, params.get(FILES))
        listed = known if isinstance(known, list) else [known]
        if any(isinstance(it, str) for it in listed):
            return text  # it has its names
        own = self._of_row(index)
        if known is None:
            names = [name for name, _ in own]
        else:
            names = self._names_of([as_mapping(it) for it in listed], own)
        value: object = names[0] if self.parameter == FILE and names else names
        others = {key: it for key, it in params.items() if key not in (FILE, FILES)}
        return json.dumps({self.parameter: value, **others})

    def _of_row(self, index: int) -> list[tuple[str, str]]:
        """Returns (name, digest) of the files of the row that has an index."""
        row = self._rows(index)
        if row is None:
            return []
        at = slice(row * self._size, (row + 1) * self._size)
        return list(zip(self._shown[at], self._digests[at], strict=True))

    def _names_of(
        self, contents: list[Mapping[str, object]], own: list[tuple[str, str]]
    ) -> list[str]:
        digests = [_identity_of(it) for it in contents]
        if digests == [digest for _, digest in own]:
            return [name for name, _ in own]
        by_content = dict(zip(self._digests, self._shown, strict=True))
        return [
            by_content.get(digest) or _describe_former(it, digest)
            for it, digest in zip(contents, digests, strict=True)
        ]


def _identity_of(known: Mapping[str, object]) -> str:
    """Returns the digest of a content; of a file in a volume its path, with which it is shown."""
    return str(known.get("sha256") or known.get("path"))


def _describe_former(it: Mapping[str, object], digest: str) -> str:
    """Returns the name of a file that the present spec has no more."""
    if "sha256" in it:
        return f"{it.get('name')} ({digest[:DIGEST_SHOWN]})"
    return digest


def file_cell(params: Mapping[str, object]) -> str:
    """Returns the names of a task's files for a cell: `a.txt, b.txt and 8 more`."""
    named = params.get(FILE, params.get(FILES))
    if not isinstance(named, list):
        if named is None:
            return ""
        return str(named)
    more = len(named) - NAMES_SHOWN
    shown = ", ".join(str(it) for it in named[:NAMES_SHOWN])
    if more > 0:
        return f"{shown} and {more} more"
    return shown


def _rows_by_index(indexes: str) -> Callable[[int], int | None]:
    if not indexes:
        return lambda index: index
    from fleetctl.controllers.reuse.row_matching import RowIndexes

    return RowIndexes.parse(indexes).row
