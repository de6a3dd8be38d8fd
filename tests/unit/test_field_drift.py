"""The fields by which an object differs from the manifest of its Source."""

from __future__ import annotations

import json
from dataclasses import replace

from fleetctl.controllers.model import Resource
from fleetctl.tracking.by_hand import (
    FIELDS_DIGESTED_MAX,
    digest_fields,
    digest_of,
    has_drifted,
    list_drift,
)
from fleetctl.tracking.kept_by import KEPT_BY, KeptBy, read_owner

SPEC = {"parallelism": 2, "template": {"python": "SUBMIT(x=1)"}, "tasks": {"items": [{"a": 1}]}}


def made(spec: object, labels: dict[str, str]) -> Resource:
    return Resource("u", "BatchJob", "a", 1, 1, json.dumps(spec), "", labels, {}, 1.0)


def note_of(row: Resource) -> KeptBy:
    return KeptBy("source/x", "a.yaml:1", "c" * 40, digest_of(row), digest_fields(row))


def test_each_changed_added_and_removed_field_is_named_with_its_value_now() -> None:
    before = made(SPEC, {"team": "a"})
    spec = {"parallelism": 7, "tasks": SPEC["tasks"], "suspend": True, "template": {}}
    after = made(spec, {"team": "b"})
    assert list_drift(before, note_of(before)) == []
    assert has_drifted(after, note_of(before))
    assert sorted(list_drift(after, note_of(before)), key=str) == [
        ("labels.team", "b"), ("parallelism", 7), ("suspend", True), ("template", {}),
        ("template.python", None),
    ]  # fmt: skip


def test_the_digests_come_back_from_the_annotation() -> None:
    row = made(SPEC, {})
    note = note_of(row)
    assert read_owner({KEPT_BY: note.text()}) == note
    assert set(note.fields) == {"parallelism", "template.python", "tasks.items"}


def test_a_note_without_digests_names_no_field() -> None:
    """Of an earlier version, or of an object with more fields than a note holds."""
    row = made(SPEC, {})
    old = '{"digest": "0", "file": "a:1", "revision": "c", "source": "source/x"}'
    note = read_owner({KEPT_BY: old})
    assert note is not None and has_drifted(row, note) and list_drift(row, note) == []
    labels = {f"label-{number}": "x" for number in range(FIELDS_DIGESTED_MAX)}
    large = replace(row, labels=labels)
    assert digest_fields(large) == {} and "fields" not in note_of(large).text()
