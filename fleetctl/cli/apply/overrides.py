"""`--set NAME=VALUE` of apply and plan: variables, and fields of the files that are given otherwise
this once.

Called where documents are read. A text whose field is changed is written anew, so what is found
wrong in it later is told by its path, and its line is that of the new text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from fleetctl.apply.write.edit import put, steps, value_of
from fleetctl.cli.targets.files import assignment
from fleetctl.common.errors import UsageError
from fleetctl.common.text import did_you_mean
from fleetctl.manifest.files.lists import read_manifests
from fleetctl.manifest.hints.words import listed
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.specs.kinds.registry import KINDS, kind_called

if TYPE_CHECKING:
    from fleetctl.manifest.files.documents import Document


def with_settings(documents: Sequence[Document], settings: Sequence[str]) -> list[Document]:
    """The documents with the fields in them, and the variables beside them. What is called like a
    variable is one; `spec.NAME=VALUE` is always a field. Raises UsageError for what is neither.
    """
    from fleetctl.manifest.rendering.render import declared_names, rendered_documents, renders

    names = declared_names(documents)
    of_variables = [it for it in settings if it.partition("=")[0] in names]
    fields = [it for it in settings if it not in of_variables]
    for field in fields if names else ():
        _check(field, names)
    given = [*documents, *map(assignment, of_variables)]
    if not fields:
        return given
    # A variable that a changed field refers to is used all the same, and what an overlay makes of
    # its base stands in no text yet.
    return with_fields(rendered_documents(given) if renders(documents) else given, fields)


def _check(field: str, names: Collection[str]) -> None:
    """Whether it may be a field, where there are variables it could be a slip of."""
    first = str(_parted(field)[0][0])
    known = [
        info.alias or name
        for kind in KINDS.values()
        if kind.runs
        for name, info in kind.spec.model_fields.items()
    ]
    if first in known or first == "search":
        return
    word = field.partition("=")[0]
    raise UsageError(
        f"`--set {word}=...`: no variable is called so, and no field either",
        hint=did_you_mean(word, [*names, *known]) or f"variables are {listed(sorted(names))}",
    )


def with_fields(documents: Sequence[Document], fields: Sequence[str]) -> list[Document]:
    """The documents with these fields in the spec of each object that does work. Raises UsageError
    for what is not a field, and where no object does work.
    """
    if not fields:
        return list(documents)
    changes = [_parted(field) for field in fields]
    changed = [_changed(document, changes) for document in documents]
    if all(new is old for new, old in zip(changed, documents, strict=True)):
        raise UsageError("`--set` changes objects that do work, and there is none in these files")
    return changed


def _parted(field: str) -> tuple[list[str | int], object]:
    path, equals, text = field.partition("=")
    if not equals or not path:
        hint = "for instance `--set template.resources.gpu=A100:4`"
        raise UsageError(f"`{field}` is not FIELD=VALUE", hint=hint)
    return steps(path.removeprefix("spec.")), value_of(path, text)


def _changed(document: Document, changes: Sequence[tuple[list[str | int], object]]) -> Document:
    """The same where nothing in it does work, or it cannot be read: the loader says why."""
    if document.role:
        return document
    reading = read_manifests(document.path, document.text)
    values = [root.value for root in reading.roots]
    works = [it for it in values if isinstance(it, dict) and _does_work(it)]
    if reading.problems or not works:
        return document
    for value in works:
        spec = value.setdefault("spec", {})
        for path, new in changes:
            if isinstance(spec, dict):
                put(spec, path, new)
    return document._replace(text="---\n".join(map(to_yaml, values)))


def _does_work(value: dict[str, object]) -> bool:
    kind = kind_called(value.get("kind"))
    return kind is not None and kind.runs
