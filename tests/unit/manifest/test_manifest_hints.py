"""Hints on wrong values: each field, whatever stands there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.manifest.hints.fields import SchemaField, manifest_field
from fleetctl.manifest.hints.value_hints import of_labels, of_value
from fleetctl.specs.kinds.registry import KINDS

# pydantic's names of errors.
SORTS = (
    "string_type",
    "int_type",
    "float_type",
    "bool_type",
    "list_type",
    "tuple_type",
    "dict_type",
    "model_type",
    "value_error",
    "literal_error",
)
TEXTS = ("", "x", "1:30:00", "2 cpus", "50%", "16GB", "$HOME", "a:/b:ro", "yes", "5 minutes")
VALUES = (None, True, 5, -1, 2.5, 1e300, float("inf"), *TEXTS)
NESTED = ([], {}, [1], [None], ["A=b"], [["a"]], [{"a": 1}], {"a": 1}, {"a": None}, {"a": {"b": 1}})


def list_names(field: SchemaField, above: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yields the names of all fields below; one that holds fields of its own name, once."""
    for child in field.children():
        yield child.name
        if child.name not in above:
            yield from list_names(child, above | {child.name})


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_wrong_value_of_any_field_gets_a_hint_or_none(kind: str) -> None:
    for name in set(list_names(manifest_field(kind))):
        for value in (*VALUES, *NESTED):
            hints = [of_value(sort, ("spec", name), value) for sort in SORTS]
            hints.append(of_labels(("spec", name), value))
            assert all(isinstance(hint, str) for hint in hints)


@pytest.mark.parametrize("value", ["5", "2.5", "true", "[[A]]", "{A: {b: 1}}"])
def test_secrets_that_are_no_list_of_names_are_refused(value: str) -> None:
    text = f"kind: BatchJob\nname: x\nscript: work\nsecrets: {value}\n"
    with pytest.raises(ManifestErrors) as caught:
        load_manifests([Document("job.yaml", text, "")])
    found = [str(it) for it in caught.value.problems]
    assert all("secrets" in it for it in found), found
