"""`--set FIELD=VALUE` of apply and plan: fields of the files that are given otherwise this once.

Called where documents are read. A changed text is written anew, so what is found wrong in it later
is told by its path, and its line is that of the new text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetctl.apply.write.edit import put, steps, value_of
from fleetctl.common.errors import UsageError
from fleetctl.manifest.files.lists import read_manifests
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.specs.kinds.registry import kind_called

if TYPE_CHECKING:
    from fleetctl.manifest.files.documents import Document


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
