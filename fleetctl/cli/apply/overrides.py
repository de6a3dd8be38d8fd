"""`--set NAME=VALUE` of apply and plan: variables, and fields of the files that get another value
this once.

Called where documents are read. A text whose field is changed is written again, so a later error in
it names its path, and its line is that of the new text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from fleetctl.apply.write.commit import parse_field_path, put_value, value_of
from fleetctl.cli.targets.files import parse_assignment
from fleetctl.common.errors import UsageError
from fleetctl.common.text import did_you_mean
from fleetctl.manifest.document.short import list_full_values
from fleetctl.manifest.hints.synonyms import join_names
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.manifest.yaml.reader import read_manifests
from fleetctl.specs.kinds.registry import KINDS, kind_called

if TYPE_CHECKING:
    from fleetctl.manifest.files.documents import Document


def with_settings(documents: Sequence[Document], settings: Sequence[str]) -> list[Document]:
    """Returns the documents with the fields in them, and the variables beside them. The name of a
    variable wins; `spec.NAME=VALUE` is always a field. Raises UsageError for a name that is
    neither.
    """
    from fleetctl.manifest.rendering.render import (
        list_declared_names,
        needs_rendering,
        rendered_documents,
    )

    names = list_declared_names(documents)
    of_variables = [it for it in settings if it.partition("=")[0] in names]
    fields = [it for it in settings if it not in of_variables]
    for field in fields if names else ():
        _check_field(field, names)
    given = [*documents, *map(parse_assignment, of_variables)]
    if not fields:
        return given
    # A variable that a changed field refers to is used all the same, and the objects that an
    # overlay makes of its base are in no text yet.
    return with_fields(rendered_documents(given) if needs_rendering(documents) else given, fields)


def _check_field(field: str, names: Collection[str]) -> None:
    """Raises UsageError for a name that may be a misspelled variable."""
    first = str(_parse_setting(field)[0][0])
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
        hint=did_you_mean(word, [*names, *known]) or f"variables are {join_names(sorted(names))}",
    )


def with_fields(documents: Sequence[Document], fields: Sequence[str]) -> list[Document]:
    """Returns the documents with these fields in the spec of each object that does work. Raises
    UsageError for an invalid field, and where no object does work.
    """
    if not fields:
        return list(documents)
    changes = [_parse_setting(field) for field in fields]
    changed = [_override_fields(document, changes) for document in documents]
    if all(new is old for new, old in zip(changed, documents, strict=True)):
        raise UsageError("`--set` changes objects that do work, and there is none in these files")
    return changed


def _parse_setting(field: str) -> tuple[list[str | int], object]:
    path, equals, text = field.partition("=")
    if not equals or not path:
        hint = "for instance `--set template.resources.gpu=A100:4`"
        raise UsageError(f"`{field}` is not FIELD=VALUE", hint=hint)
    at = parse_field_path(path.removeprefix("spec."))
    # Variables of a process are texts, and a user who types `env.STEPS=200` in a shell has quoted
    # it.
    is_variable = at[-2:-1] == ["env"] and text[:1] != '"'
    return at, text if is_variable else value_of(path, text)


def _override_fields(
    document: Document, changes: Sequence[tuple[list[str | int], object]]
) -> Document:
    """Returns the document with changes; unchanged where no object in it does work, or it is
    unreadable: the loader reports why."""
    if document.role:
        return document
    reading = read_manifests(document.path, document.text)
    values = list_full_values(root.value for root in reading.roots)
    works = [it for it in values if isinstance(it, dict) and _does_work(it)]
    if reading.problems or not works:
        return document
    for value in works:
        spec = value.setdefault("spec", {})
        for path, new in changes:
            if isinstance(spec, dict):
                put_value(spec, path, new)
    return document._replace(text="---\n".join(map(to_yaml, values)))


def _does_work(value: dict[str, object]) -> bool:
    kind = kind_called(value.get("kind"))
    return kind is not None and kind.runs
