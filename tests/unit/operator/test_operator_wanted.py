"""A custom resource as what is applied: what is a change, and which files it may not name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleetctl.manifest.cluster import files_in
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.loader import load_manifests
from fleetctl.operator.mirror.custom_resource import (
    APPROVE,
    FINALIZER,
    ResourceOrigin,
    manifest_text,
    parse_custom_resource,
)
from fleetctl.operator.mirror.entries import MirrorEntry, drop_unread, is_whole, let_go
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.tracking.kept_by import MADE_FROM

JOB = KINDS["BatchJob"]


def custom(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    made = {"name": "x", "namespace": "team", "uid": "u1", "generation": 2, "resourceVersion": "9"}
    spec = {"template": {"python": "a = 3e-5\nSUBMIT(x=1)\n"}} if spec is None else spec
    return {"metadata": {**made, **metadata}, "spec": spec}


def test_what_is_applied_is_what_was_written() -> None:
    labels, notes = {"team": "rlm"}, {"note": "ünï \U0001f600", APPROVE: "abc"}
    found = custom(labels=labels, annotations=notes)
    origin = parse_custom_resource(found).origin
    (manifest,) = load_manifests([Document("x", manifest_text(JOB, found, origin), "/nonexistent")])
    assert (manifest.name, manifest.namespace) == ("x", "team")
    assert manifest.metadata.labels == labels
    assert manifest.metadata.annotations == {"note": notes["note"], MADE_FROM: origin.text()}
    assert manifest.spec.template.python == found["spec"]["template"]["python"]  # type: ignore[attr-defined]


def test_only_what_is_applied_makes_another_digest() -> None:
    plain = parse_custom_resource(custom()).origin.digest
    assert parse_custom_resource(custom(annotations={APPROVE: plain})).origin.digest == plain
    assert parse_custom_resource(custom(annotations={APPROVE: plain})).allows
    assert not parse_custom_resource(custom(annotations={APPROVE: "other"})).allows
    assert parse_custom_resource(custom(finalizers=[FINALIZER])).origin.digest == plain
    assert parse_custom_resource(custom(labels={"a": "b"})).origin.digest != plain
    assert parse_custom_resource(custom({"template": {"python": "b"}})).origin.digest != plain


def test_a_settled_object_keeps_its_digest_without_its_spec() -> None:
    last = "kubectl.kubernetes.io/last-applied-configuration"
    found = custom(annotations={last: "{}"}, managedFields=[{}])
    digest = parse_custom_resource(found).origin.digest
    drop_unread(found)
    let_go(found)
    assert not is_whole(found)
    assert parse_custom_resource(found).origin.digest == digest
    assert set(found) == {"metadata", "digest"}
    assert last not in json.dumps(found)
    held = custom(annotations={APPROVE: digest, "note": "x"}, finalizers=[FINALIZER])
    before = parse_custom_resource(held)
    let_go(held)
    assert parse_custom_resource(held) == before


def test_an_answer_is_newer_than_a_cache_that_lags() -> None:
    entry = MirrorEntry(JOB, ("team", "x"), fresh=custom(resourceVersion="12"))
    assert entry.newest(custom(resourceVersion="9"))["metadata"]["resourceVersion"] == "12"  # type: ignore[index]
    assert entry.newest(custom(resourceVersion="13"))["metadata"]["resourceVersion"] == "13"  # type: ignore[index]
    assert entry.fresh is None
    assert entry.path == "/apis/fleetctl.dev/v1alpha1/namespaces/team/batchjobs/x"


NAMED = {
    "BatchJob": [
        ({"tasks": {"fromFile": "/etc/passwd"}}, "spec.tasks.fromFile"),
        ({"template": {"source": {"path": "/"}}}, "spec.template.source.path"),
        ({"template": {"image": {"pip": ["numpy", "-r x"]}}}, "spec.template.image.pip[1]"),
        ({"template": {"image": {"pip": ["x @ file:///a.whl"]}}}, "spec.template.image.pip[0]"),
        ({"template": {"image": {"pip": ["/a.whl"]}}}, "spec.template.image.pip[0]"),
    ],
    "Sweep": [({"searchFrom": {"file": "a"}}, "spec.searchFrom")],
    "Secret": [({"fromFile": {"TOKEN": "/var/run/secrets/token"}}, "spec.fromFile")],
    "Function": [({"source": {"path": "."}}, "spec.source.path")],
    "Schedule": [
        (
            {"template": {"kind": "BatchJob", "spec": {"template": {"source": {"path": "/"}}}}},
            "spec.template.spec.template.source.path",
        ),
        (
            {"template": {"kind": "BatchJob", "spec": {"tasks": {"files": {"base": "."}}}}},
            "spec.template.spec.tasks.files",
        ),
    ],
    "TrainingRun": [
        ({"stages": [{}, {"image": {"pip": ["./a"]}}]}, "spec.stages[1].image.pip[0]"),
    ],
}


@pytest.mark.parametrize(
    ("kind", "spec", "where"), [(kind, *it) for kind, rows in NAMED.items() for it in rows]
)
def test_a_field_that_names_a_file_is_found(kind: str, spec: dict[str, Any], where: str) -> None:
    assert [path for path, _ in files_in(KINDS[kind].files, spec)] == [where]
    assert all(hint for _, hint in files_in(KINDS[kind].files, spec))


def test_every_field_that_a_kind_reads_a_file_for_is_at_the_border() -> None:
    for kind in KINDS.values():
        for field in kind.files:
            outer, _, name = field.rpartition(".")
            spec = {outer: {name: "x"}} if outer else {name: "x"}
            assert [path for path, _ in files_in(kind.files, spec)] == [f"spec.{field}"]


def test_work_without_files_names_none() -> None:
    spec = {"template": {"image": {"pip": ["numpy==1.26", "torch[cuda] @ https://x/y.whl"]}}}
    assert list(files_in(JOB.files, spec)) == []
    assert ResourceOrigin("u", 1, "d").text() == "u 1 d"
