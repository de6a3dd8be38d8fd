"""Makes the files that a manifest names part of the spec before it is checked. Called by loader.py.

`searchFrom` becomes `search`, `tasks.fromFile` becomes `tasks.items`, `tasks.fromFiles` becomes
`tasks.files`, and `-r FILE` in `image.pip` becomes the file's list: a stored spec means the same
wherever the controller runs and whatever happens to the files later. `source.path` stays as it is
written, so that two checkouts of a repository agree; its absolute path is reported beside it.
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

from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.files import fence
from fleetctl.manifest.files.documents import Document, is_address, read_document
from fleetctl.manifest.files.parameter_rows import RowError, read_rows
from fleetctl.manifest.files.requirements import (
    RequirementsError,
    add_content_digest,
    editable_path,
    explain_no_import,
    explain_wrong_package,
    parse_named_file,
    put_first,
    read_requirements,
    resolve_path,
    resolve_sent_package,
)
from fleetctl.manifest.files.task_files import (
    FilesError,
    explain_wrong_glob,
    find_files,
    real_path,
    split_glob,
)
from fleetctl.manifest.findings import list_findings
from fleetctl.manifest.problems import ManifestProblem, shorten_text, value_text
from fleetctl.manifest.yaml.reader import read_yaml
from fleetctl.manifest.yaml.wandb import WANDB
from fleetctl.specs.blocks.file_tasks import FromFiles
from fleetctl.specs.kinds.batchjob import FromFile
from fleetctl.specs.kinds.registry import kind_called
from fleetctl.specs.kinds.sweep import SearchFile
from fleetctl.specs.values.packages import OUTSIDE, is_inside, split_options, with_options

OUTSIDE_IT = fence.describe_error(fence.OutsideRepository())
FILES_LOOKED_AT_MAX = 1000  # for a name that is nearly right
MANIFEST_DIRECTORY = "the directory of the manifest that names it"

# These replace unreadable contents, so that everything else is still checked.
_SOME_SEARCH = {"method": "grid", "program": "-", "parameters": {"x": {"value": 0}}}
_SOME_TASKS = {"completions": 1}


@dataclass(slots=True)
class IncludedFiles:
    """The contents of the files that a document names, and their faults.

    findings: the naming is wrong. problems: the content is. doubts: it may not be what is meant.
    moved: paths that stand elsewhere.
    """

    findings: list[Finding] = field(default_factory=list)
    problems: list[ManifestProblem] = field(default_factory=list)
    doubts: list[Finding] = field(default_factory=list)
    moved: dict[Path, Document] = field(default_factory=dict)
    origin: str = ""  # where `source.path` leads
    read: list[str] = field(default_factory=list)  # files, absolute
    inputs: dict[str, str] = field(default_factory=dict)  # of tasks: digest -> file, absolute


def include_files(data: dict[str, Any], document: Document) -> IncludedFiles:
    """Replaces file names in `data`, a part of `document`, by contents; relative paths begin at its
    directory.
    """
    included = IncludedFiles()
    spec = data.get("spec")
    if not isinstance(spec, dict):
        return included
    _include_source(spec, document, included)
    _include_requirements(spec, document, included)
    kind = kind_called(data.get("kind"))
    for name in kind.files if kind is not None else ():
        _READERS[name](spec, document, included)
    return included


def _absolute_path(path: Any, directory: str) -> Any:
    """Returns the path from the root; leaves a value that is not a path for the model to refuse."""
    if not isinstance(path, str) or not path or "\0" in path:
        return path
    own = os.path.expanduser(path)  # pathlib's raises where there is no such user
    return os.path.normpath(os.path.join(directory, own))


def _resolve_sent_path(path: Any, document: Document) -> Any:
    """Returns the path from the root; of a file of another machine, where it was sent to."""
    if isinstance(path, str) and path in document.sent:
        return document.sent[path]
    return _absolute_path(path, document.dir)


def _suggest_near_file(
    path: str,
    written: str,
    *,
    base: str = MANIFEST_DIRECTORY,
) -> str:
    """Returns a hint: a file there with nearly the same name, or else the directory that was
    searched. base: the directory that the path is relative to.
    """
    place = FilePath(path)
    if not fence.is_inside(place):
        return ""
    relative = not is_address(path) and not written.startswith(("/", "~"))
    missing = relative and not os.path.exists(place)
    looked_in = f"a path here is relative to {base}" if missing else ""
    try:
        names = [it.name for it in islice(place.parent.iterdir(), FILES_LOOKED_AT_MAX)]
    except OSError:
        return looked_in
    found = get_close_matches(place.name, names, n=1)
    if not found or found[0] == place.name:
        return looked_in
    return f"did you mean `{shorten_text(str(FilePath(written).with_name(found[0])))}`?"


def _shown_path(path: str, document: Document) -> str:
    """Returns the path as the user would write it beside the manifest's own."""
    return os.path.join(os.path.dirname(document.path), path)  # keeps `./`


def _include_source(
    spec: dict[str, Any],
    document: Document,
    included: IncludedFiles,
) -> None:
    """A Function has its source in its spec, the kinds that run have theirs in their template."""
    within: Path = ("spec", "template") if "template" in spec else ("spec",)
    holder = spec.get("template", spec)
    source = holder.get("source") if isinstance(holder, dict) else None
    if not isinstance(source, dict) or "path" not in source:
        return
    written = source["path"]
    here = (*within, "source", "path")
    path = _resolve_sent_path(written, document)
    if not isinstance(path, str) or not path or "\0" in path:
        return
    source["path"] = _as_written(written)
    if not fence.is_inside(path):
        included.findings.append(Finding(here, f" is {value_text(written)}; {OUTSIDE_IT}"))
        return
    if fence.is_of_kernel(path):
        message = f" is {value_text(written)}; it holds what is no file of a program"
        hint = "name the directory of the program"
        included.findings.append(Finding(here, message, hint))
        return
    included.origin = path
    if not os.path.isdir(path):  # pathlib's raises for a long name
        there = os.path.exists(path)
        message = "it is a file, and must be a directory" if there else "there is no such directory"
        hint = "" if there else _suggest_near_file(path, written)
        included.findings.append(Finding(here, f" is {value_text(written)}; {message}", hint))


def _as_written(path: str) -> str:
    """Returns a normal form: `./src/` and `src` are one path."""
    own = os.path.expanduser(path)  # as in _absolute_path
    return os.path.normpath(own)


def _include_requirements(
    spec: dict[str, Any],
    document: Document,
    included: IncludedFiles,
) -> None:
    """Replaces `-r FILE` in `image.pip` by the file's list, and so `image.requirements`, a file of
    the `source.path`; a file of a package gets its digest.
    """
    within: Path = ("spec", "template") if "template" in spec else ("spec",)
    _include_image(spec.get("template", spec), within, document, included)
    stages = spec.get("stages")
    for number, stage in enumerate(stages if isinstance(stages, list) else ()):
        _include_image(stage, ("spec", "stages", number), document, included)


def _include_image(
    holder: Any,
    within: Path,
    document: Document,
    included: IncludedFiles,
) -> None:
    """Includes the files of an image; within: the path of the image's owner."""
    image = holder.get("image") if isinstance(holder, dict) else None
    _find_links(image, within, included)
    listed = image.get("pip", []) if isinstance(image, dict) else None
    if not isinstance(listed, list):
        return
    assert isinstance(image, dict)
    entries: list[Any] = []
    for at, entry in enumerate(listed):
        path = parse_named_file(entry)
        if path is None:
            _include_editable(
                entry,
                holder,
                (*within, "image", "pip", at),
                document,
                included,
            )
            entries.append(resolve_sent_package(resolve_path(entry, document.dir), document.sent))
        else:
            here = (*within, "image", "pip", at)
            found = _read_listed(
                path,
                document.dir,
                here,
                document,
                included,
            )
            entries += _without_options(found, image)
    own = image.get("requirements")
    if included.origin and isinstance(own, str) and own and "stages" not in within:
        del image["requirements"]
        here = (*within, "image", "requirements")
        if not is_inside(own):
            included.findings.append(Finding(here, f" is {value_text(own)}; it {OUTSIDE}"))
        else:
            found = _read_listed(
                own,
                included.origin,
                here,
                document,
                included,
            )
            entries += _without_options(found, image)
    if entries or "pip" in image:
        here = (*within, "image", "pip")
        for entry in entries:
            if (problem := explain_wrong_package(entry)) and isinstance(entry, str):
                message = f" names {value_text(entry)}; {problem}"
                included.findings.append(Finding(here, message))
        image["pip"] = [add_content_digest(entry, included.read) for entry in entries]


def _include_editable(
    entry: Any,
    holder: dict[str, Any],
    here: Path,
    document: Document,
    included: IncludedFiles,
) -> None:
    """Makes tasks import an editable package from their source, or reports why they do not."""
    path = editable_path(entry, document.dir)
    if path is None:
        return
    why = explain_no_import(path, included.origin, holder.get("workdir"))
    if not why:
        put_first(holder, path, included.origin)
        return
    message = f" is {value_text(entry)}, and {why}: it is installed as it is when the image is made"
    hint = "leave `-e` out where that is meant, or have it below `source.path`"
    included.doubts.append(Finding(here, message, hint))


def _find_links(
    image: Any,
    within: Path,
    included: IncludedFiles,
) -> None:
    """Adds an error for each directory in `findLinks` outside of the manifest's repository."""
    index = image.get("pipIndex") if isinstance(image, dict) else None
    links = index.get("findLinks") if isinstance(index, dict) else None
    for number, link in enumerate(links if isinstance(links, list) else ()):
        if isinstance(link, str) and link.startswith("/") and not fence.is_inside(link):
            here = (*within, "image", "pipIndex", "findLinks", number)
            message = f" is {value_text(link)}; {OUTSIDE_IT}"
            included.findings.append(Finding(here, message))


def _without_options(listed: list[str], image: dict[str, Any]) -> list[str]:
    """The packages that a file lists; which index it names becomes part of the image."""
    packages, index = split_options(listed)
    if index:
        image["pipIndex"] = with_options(image.get("pipIndex"), index)
    return packages


def _read_listed(
    path: str,
    directory: str,
    here: Path,
    document: Document,
    included: IncludedFiles,
) -> list[str]:
    """Returns the entries of a requirements file; empty for a wrong file, which is noted. here:
    path of the entry that names it.
    """
    try:
        return read_requirements(path, directory, included.read)
    except RequirementsError as error:
        if error.line:
            beside = os.path.relpath(os.path.join(directory, error.file), document.dir or ".")
            shown = _shown_path(beside, document)
            included.problems.append(ManifestProblem(shown, error.line, 1, str(error)))
        else:
            message = f" names {value_text(error.file)}; {error}"
            base = MANIFEST_DIRECTORY if directory == document.dir else "`source.path`"
            hint = _suggest_near_file(os.path.join(directory, error.file), error.file, base=base)
            included.findings.append(Finding(here, message, hint))
    return []


def _resolve_value_files(
    spec: dict[str, Any],
    document: Document,
    included: IncludedFiles,
) -> None:
    """Resolves files whose content is read when a run starts: only their paths are reported."""
    if not isinstance(spec.get("fromFile"), dict):
        return
    for name, path in spec["fromFile"].items():
        spec["fromFile"][name] = whole = _absolute_path(path, document.dir)
        if isinstance(whole, str) and whole and "\0" not in whole and not fence.is_inside(whole):
            here: Path = ("spec", "fromFile", name)
            message = f" is {value_text(path)}; {OUTSIDE_IT}"
            included.findings.append(Finding(here, message))


def _include_search(
    spec: dict[str, Any],
    document: Document,
    included: IncludedFiles,
) -> None:
    if "searchFrom" not in spec:
        return
    here = ("spec", "searchFrom")
    named = spec.pop("searchFrom")
    if "search" in spec:
        problem = " is given beside `search`; only one of them can be meant"
        included.findings.append(Finding(here, problem, at_key=True))
        return
    spec["search"] = _SOME_SEARCH
    try:
        path = SearchFile.model_validate(named, by_alias=True, by_name=False).file
    except ValidationError as error:
        included.findings.extend(list_findings(error, SearchFile, named, here))
        return
    whole = _absolute_path(path, document.dir)
    found = read_document(whole)
    included.read.append(whole)
    if found.refused:
        at = (*here, "file")
        problem = f" is {value_text(path)}; {found.refused}"
        included.findings.append(Finding(at, problem, _suggest_near_file(whole, path)))
        return
    path = _shown_path(path, document)
    reading = read_yaml(path, found.text, dialect=WANDB)
    included.problems.extend(reading.problems)
    if len(reading.roots) != 1:
        if not reading.problems:
            included.problems.append(
                ManifestProblem(path, 0, 0, "the file must hold one sweep configuration")
            )
        return
    spec["search"] = reading.roots[0].value
    included.moved[("spec", "search")] = found._replace(path=path)


def _include_tasks(
    spec: dict[str, Any],
    document: Document,
    included: IncludedFiles,
) -> None:
    tasks = spec.get("tasks")
    here = ("spec", "tasks", "fromFile")
    if not isinstance(tasks, dict) or "fromFile" not in tasks:
        return
    if set(tasks) - {"fromFile", "chunk"}:
        return  # the model reports that only one may be given
    try:
        named = FromFile.model_validate(tasks["fromFile"], by_alias=True, by_name=False)
    except ValidationError:
        return  # the model finds the same
    chunk = tasks.get("chunk", named.chunk)
    if not _may_be_chunk(chunk):
        return
    spec["tasks"] = _SOME_TASKS
    path = _absolute_path(named.path, document.dir)
    included.read.append(path)
    try:
        rows = read_rows(path)
    except RowError as error:
        shown = _shown_path(named.path, document)
        for one in (error, *error.others):
            included.problems.append(
                ManifestProblem(
                    shown,
                    one.line,
                    1,
                    str(one),
                    one.hint,
                )
            )
    except OSError as error:
        message = f" is {value_text(named.path)}; it cannot be read: {fence.describe_error(error)}"
        included.findings.append(Finding(here, message, _suggest_near_file(path, named.path)))
    except ValueError as error:
        included.findings.append(Finding(here, f" is {value_text(named.path)}; {error}"))
    else:
        spec["tasks"] = {"items": rows if chunk is None else _split_chunks(rows, chunk)}


def _may_be_chunk(chunk: Any) -> bool:
    return chunk is None or (isinstance(chunk, int) and chunk >= 1)


def _include_files_of_tasks(
    spec: dict[str, Any],
    document: Document,
    included: IncludedFiles,
) -> None:
    """Replaces `fromFiles` by the files that it finds, each with the digest of its content.
    A volume is listed later, by task_inputs.py, when its provider is known.
    """
    tasks = spec.get("tasks")
    if not isinstance(tasks, dict) or set(tasks) - {"fromFiles", "chunk"} or not tasks:
        return  # the model reports that only one may be given
    try:
        named = FromFiles.model_validate(tasks.get("fromFiles"), by_alias=True, by_name=False)
    except ValidationError:
        return  # the model finds the same
    chunk = tasks.get("chunk", named.chunk)
    if not _may_be_chunk(chunk):
        return

    spec["tasks"] = _SOME_TASKS
    try:
        files = _list_task_files(named, document, included)
    except FilesError as error:
        at: Path = ("spec", "tasks", "fromFiles")
        if isinstance(tasks["fromFiles"], dict):
            at = (*at, "glob")
        problem = f" is {value_text(named.glob)}; {error}"
        included.findings.append(Finding(at, problem, error.hint))
        return

    if chunk is not None:
        files["chunk"] = chunk
    if named.names and named.volume is None:
        files["names"] = True
    spec["tasks"] = {"files": files}


def _list_task_files(
    named: FromFiles,
    document: Document,
    included: IncludedFiles,
) -> dict[str, Any]:
    """Returns the `files` that replace `fromFiles`, and notes their contents. Raises FilesError for
    a pattern that finds no file, and for files that must not or cannot be read.
    """
    if named.volume is not None:
        if why := explain_wrong_glob(named.glob):
            raise FilesError(why)
        return {"base": ".", "volume": named.volume, "glob": named.glob}

    base, parts = split_glob(named.glob)
    path = real_path(document.dir, base)
    if not fence.is_inside(path):
        raise FilesError(OUTSIDE_IT)
    if fence.is_of_kernel(path):
        raise FilesError(
            "it holds what is no file of a task",
            "name the directory of the files, such as `texts/*`",
        )

    own = os.path.join(document.dir, os.path.basename(document.path))
    try:
        found = find_files(path, parts, written=base, own=own, names=named.names)
    except FilesError as error:
        raise FilesError(str(error), error.hint or _suggest_near_file(path, base)) from error
    except OSError as error:
        name = shorten_text(os.fsdecode(error.filename or base))
        raise FilesError(f"`{name}` cannot be read: {fence.describe_error(error)}") from error
    included.inputs.update((it.digest, it.real) for it in found)
    listed = [{"path": it.path, "sha256": it.digest, "bytes": it.size} for it in found]
    return {"base": base, "found": listed}


def _keep_files(
    spec: dict[str, Any],
    document: Document,
    included: IncludedFiles,
) -> None:
    """Leaves files alone that an earlier apply has found, or whose contents were sent."""
    included.inputs.update(document.sent)


def _split_chunks(rows: list[Any], size: int) -> list[Any]:
    return [{"rows": rows[at : at + size]} for at in range(0, len(rows), size)]


# By the names that a kind's row gives to its fields.
_READERS: dict[str, Callable[[dict[str, Any], Document, IncludedFiles], None]] = {
    "fromFile": _resolve_value_files,
    "searchFrom": _include_search,
    "tasks.fromFile": _include_tasks,
    "tasks.fromFiles": _include_files_of_tasks,
    "tasks.files": _keep_files,
}
