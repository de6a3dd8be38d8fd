"""Files that a manifest names, made part of the spec before it is checked. Called by loader.py.

`searchFrom` becomes `search`, `tasks.fromFile` becomes `tasks.items`, and `-r FILE` in `image.pip`
becomes what that file lists: what is stored means the same wherever the controller runs and
whatever happens to the files later. `source.path` stays as it is written, so that two checkouts of
a repository agree; where it leads is told beside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from fleetctl.manifest.files import fence
from fleetctl.manifest.files.documents import Document, is_address, read_documents
from fleetctl.manifest.files.requirements import (
    RequirementsError,
    named_file,
    read_requirements,
    told_by_content,
    whole_path,
)
from fleetctl.manifest.files.rows import RowError, read_rows
from fleetctl.manifest.messages import Finding, findings
from fleetctl.manifest.problems import Path, Problem, shortened, value_text
from fleetctl.manifest.yaml.reader import read
from fleetctl.manifest.yaml.wandb import WANDB
from fleetctl.specs.kinds.batchjob import FromFile
from fleetctl.specs.kinds.registry import kind_called
from fleetctl.specs.kinds.sweep import SearchFile
from fleetctl.specs.values.packages import OUTSIDE, is_inside, split_options, with_options

OUTSIDE_IT = fence.reason(fence.Outside())
FILES_LOOKED_AT_MAX = 1000  # for a name that is nearly right
MANIFEST_DIRECTORY = "the directory of the manifest that names it"

# These stand in for what could not be read, so that everything else is still checked.
_SOME_SEARCH = {"method": "grid", "program": "-", "parameters": {"x": {"value": 0}}}
_SOME_TASKS = {"completions": 1}


@dataclass(slots=True)
class Included:
    """What was found in the files that a document names.

    findings: the naming is wrong. problems: the content is. moved: paths that stand elsewhere.
    """

    findings: list[Finding] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    moved: dict[Path, Document] = field(default_factory=dict)
    origin: str = ""  # where `source.path` leads
    read: list[str] = field(default_factory=list)  # files, absolute


def include(data: dict[str, Any], document: Document) -> Included:
    """Change `data`, a part of `document`, in place. Relative paths begin at its directory."""
    included, directory = Included(), document.dir
    spec = data.get("spec")
    if not isinstance(spec, dict):
        return included
    _source(spec, directory, included)
    _requirements(spec, document, included)
    kind = kind_called(data.get("kind"))
    for name in kind.files if kind is not None else ():
        _READERS[name](spec, document, included)
    return included


def _absolute(path: Any, directory: str) -> Any:
    """The path from the root; what is not a path is left for the model to refuse."""
    if not isinstance(path, str) or not path or "\0" in path:
        return path
    own = os.path.expanduser(path)  # noqa: PTH111 - pathlib's raises where there is no such user
    return os.path.normpath(os.path.join(directory, own))


def _near(path: str, written: str, *, base: str = MANIFEST_DIRECTORY) -> str:
    """A hint: what lies there under nearly the same name, or else where it was looked for. base:
    the directory that the path is relative to.
    """
    place = FilePath(path)
    if not fence.inside(place):
        return ""
    relative = not is_address(path) and not written.startswith(("/", "~"))
    looked_in = f"a path here is relative to {base}" if relative and not place.exists() else ""
    try:
        names = [it.name for it in islice(place.parent.iterdir(), FILES_LOOKED_AT_MAX)]
    except OSError:
        return looked_in
    found = get_close_matches(place.name, names, n=1)
    if not found or found[0] == place.name:
        return looked_in
    return f"did you mean `{shortened(str(FilePath(written).with_name(found[0])))}`?"


def _shown(path: str, document: Document) -> str:
    """The path as the person would write it beside the manifest's own."""
    return os.path.join(os.path.dirname(document.path), path)  # noqa: PTH120 - keeps `./`


def _source(spec: dict[str, Any], directory: str, included: Included) -> None:
    """A Function has its source in its spec, the kinds that run have theirs in their template."""
    within: Path = ("spec", "template") if "template" in spec else ("spec",)
    holder = spec.get("template", spec)
    source = holder.get("source") if isinstance(holder, dict) else None
    if not isinstance(source, dict) or "path" not in source:
        return
    written, here = source["path"], (*within, "source", "path")
    path = _absolute(written, directory)
    if not isinstance(path, str) or not path or "\0" in path:
        return
    source["path"] = _as_written(written)
    if not fence.inside(path):
        included.findings.append(Finding(here, here, f" is {value_text(written)}; {OUTSIDE_IT}"))
        return
    included.origin = path
    if not fence.inside(path):
        message = f" is {value_text(written)}; it lies outside of the repository"
        included.findings.append(Finding(here, here, message))
    elif not FilePath(path).is_dir():
        there = FilePath(path).exists()
        message = "it is a file, and must be a directory" if there else "there is no such directory"
        hint = "" if there else _near(path, written)
        included.findings.append(Finding(here, here, f" is {value_text(written)}; {message}", hint))


def _as_written(path: str) -> str:
    """`./src/` and `src` are one path."""
    own = os.path.expanduser(path)  # noqa: PTH111 - as in _absolute
    return os.path.normpath(own)


def _requirements(spec: dict[str, Any], document: Document, included: Included) -> None:
    """`-r FILE` in `image.pip` becomes what the file lists, and so does `image.requirements`, a
    file of the `source.path`; a file of a package gets its digest.
    """
    within: Path = ("spec", "template") if "template" in spec else ("spec",)
    _listing(spec.get("template", spec), within, document, included)
    stages = spec.get("stages")
    for number, stage in enumerate(stages if isinstance(stages, list) else ()):
        _listing(stage, ("spec", "stages", number), document, included)


def _listing(holder: Any, within: Path, document: Document, included: Included) -> None:
    """The same of one image; within: what has it."""
    image = holder.get("image") if isinstance(holder, dict) else None
    listed = image.get("pip", []) if isinstance(image, dict) else None
    if not isinstance(listed, list):
        return
    assert isinstance(image, dict)
    entries: list[Any] = []
    for at, entry in enumerate(listed):
        path = named_file(entry)
        if path is None:
            entries.append(whole_path(entry, document.dir))
        else:
            here = (*within, "image", "pip", at)
            found = _listed(path, document.dir, here, document, included)
            entries += _without_options(found, image)
    own = image.get("requirements")
    if included.origin and isinstance(own, str) and own and "stages" not in within:
        del image["requirements"]
        here = (*within, "image", "requirements")
        if not is_inside(own):
            included.findings.append(Finding(here, here, f" is {value_text(own)}; it {OUTSIDE}"))
        else:
            found = _listed(own, included.origin, here, document, included)
            entries += _without_options(found, image)
    if entries or "pip" in image:
        image["pip"] = [told_by_content(entry, included.read) for entry in entries]


def _without_options(listed: list[str], image: dict[str, Any]) -> list[str]:
    """The packages that a file lists; which index it names becomes part of the image."""
    packages, index = split_options(listed)
    if index:
        image["pipIndex"] = with_options(image.get("pipIndex"), index)
    return packages


def _listed(
    path: str, directory: str, here: Path, document: Document, included: Included
) -> list[str]:
    """What a requirements file lists; nothing where it is wrong, which is noted. here: what names
    it.
    """
    try:
        return read_requirements(path, directory, included.read)
    except RequirementsError as error:
        if error.line:
            beside = os.path.relpath(os.path.join(directory, error.file), document.dir or ".")
            shown = _shown(beside, document)
            included.problems.append(Problem(shown, error.line, 1, str(error)))
        else:
            message = f" names {value_text(error.file)}; {error}"
            base = MANIFEST_DIRECTORY if directory == document.dir else "`source.path`"
            hint = _near(os.path.join(directory, error.file), error.file, base=base)
            included.findings.append(Finding(here, here, message, hint))
    return []


def _values(spec: dict[str, Any], document: Document, included: Included) -> None:
    """Files whose content is read when a run starts: only where they are is told."""
    if not isinstance(spec.get("fromFile"), dict):
        return
    for name, path in spec["fromFile"].items():
        spec["fromFile"][name] = whole = _absolute(path, document.dir)
        if isinstance(whole, str) and whole and "\0" not in whole and not fence.inside(whole):
            here: Path = ("spec", "fromFile", name)
            message = f" is {value_text(path)}; {OUTSIDE_IT}"
            included.findings.append(Finding(here, here, message))


def _search(spec: dict[str, Any], document: Document, included: Included) -> None:
    if "searchFrom" not in spec:
        return
    here = ("spec", "searchFrom")
    named = spec.pop("searchFrom")
    if "search" in spec:
        problem = " stands beside `search`; only one of them can be meant"
        included.findings.append(Finding(here, here, problem, at_key=True))
        return
    spec["search"] = _SOME_SEARCH
    try:
        path = SearchFile.model_validate(named, by_alias=True, by_name=False).file
    except ValidationError as error:
        included.findings.extend(findings(error, SearchFile, named, here))
        return
    (found,) = read_documents([_absolute(path, document.dir)])
    included.read.append(_absolute(path, document.dir))
    if found.refused:
        at = (*here, "file")
        problem, whole = f" is {value_text(path)}; {found.refused}", _absolute(path, document.dir)
        included.findings.append(Finding(at, at, problem, _near(whole, path)))
        return
    path = _shown(path, document)
    reading = read(path, found.text, dialect=WANDB)
    included.problems.extend(reading.problems)
    if len(reading.roots) != 1:
        if not reading.problems:
            included.problems.append(
                Problem(path, 0, 0, "the file must hold one sweep configuration")
            )
        return
    spec["search"] = reading.roots[0].value
    included.moved[("spec", "search")] = found._replace(path=path)


def _tasks(spec: dict[str, Any], document: Document, included: Included) -> None:
    tasks, here = spec.get("tasks"), ("spec", "tasks", "fromFile")
    if not isinstance(tasks, dict) or "fromFile" not in tasks:
        return
    if set(tasks) - {"fromFile", "chunk"}:
        return  # the model says that only one of them can be meant
    try:
        named = FromFile.model_validate(tasks["fromFile"], by_alias=True, by_name=False)
    except ValidationError:
        return  # the model finds the same
    chunk = tasks.get("chunk", named.chunk)
    if not isinstance(chunk, int | None) or (chunk is not None and chunk < 1):
        return
    spec["tasks"] = _SOME_TASKS
    path = _absolute(named.path, document.dir)
    included.read.append(path)
    try:
        rows = read_rows(path)
    except RowError as error:
        shown = _shown(named.path, document)
        included.problems.append(Problem(shown, error.line, 1, str(error), error.hint))
    except OSError as error:
        message = f" is {value_text(named.path)}; it cannot be read: {fence.reason(error)}"
        included.findings.append(Finding(here, here, message, _near(path, named.path)))
    except ValueError as error:
        included.findings.append(Finding(here, here, f" is {value_text(named.path)}; {error}"))
    else:
        spec["tasks"] = {"items": rows if chunk is None else _chunks(rows, chunk)}


def _chunks(rows: list[Any], size: int) -> list[Any]:
    return [{"rows": rows[at : at + size]} for at in range(0, len(rows), size)]


# By the names that a kind's row gives to its fields.
_READERS: dict[str, Callable[[dict[str, Any], Document, Included], None]] = {
    "fromFile": _values,
    "searchFrom": _search,
    "tasks.fromFile": _tasks,
}
