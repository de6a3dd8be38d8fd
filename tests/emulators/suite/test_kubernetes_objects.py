"""Objects of the emulated API server, by the official Python client, as at a real one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes import watch
from kubernetes.client import ApiException

from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.emulators.suite.kubernetes_driving import (
    WIDGETS,
    Asking,
    asking,
    cluster,
    refusal,
    widget,
)

__all__ = ["asking", "cluster"]


def patched(asking: Asking, name: str, body: Any, *, status: bool = False) -> Any:
    """A merge patch."""
    how = "patch_namespaced_custom_object" + ("_status" if status else "")
    call = getattr(asking.widgets, how)
    return call(*WIDGETS, name, body, _content_type="application/merge-patch+json")


def test_an_object_is_created_once_and_gone_when_it_is_deleted(asking: Asking) -> None:
    made = asking.create(widget("once"))
    assert made["metadata"]["generation"] == 1 and made["spec"]["color"] == "red"
    error = refusal(lambda: asking.create(widget("once")))
    assert (error["code"], error["reason"]) == (409, "AlreadyExists")
    assert error["message"] == 'widgets.example.com "once" already exists'
    asking.widgets.delete_namespaced_custom_object(*WIDGETS, "once")
    error = refusal(lambda: asking.get("once"))
    assert (error["code"], error["message"]) == (404, 'widgets.example.com "once" not found')


def test_a_stale_write_is_a_409_by_put_and_by_patch(asking: Asking) -> None:
    old = asking.create(widget("stale", replicas=1))
    new = asking.widgets.replace_namespaced_custom_object(
        *WIDGETS, "stale", {**old, "spec": {"size": 4}}
    )
    assert new["metadata"]["generation"] == 2
    version = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}}
    for write in (
        lambda: asking.widgets.replace_namespaced_custom_object(*WIDGETS, "stale", old),
        lambda: patched(asking, "stale", {**version, "spec": {"size": 5}}),
    ):
        error = refusal(write)
        assert (error["code"], error["reason"]) == (409, "Conflict")
        assert "the object has been modified" in error["message"]
    assert asking.get("stale")["spec"] == {"size": 4, "color": "red"}


def test_status_and_spec_do_not_touch_each_other(asking: Asking) -> None:
    asking.create({**widget("apart"), "status": {"phase": "Lies"}})
    assert "status" not in asking.get("apart")
    patched(asking, "apart", {"status": {"phase": "Up"}, "spec": {"size": 9}}, status=True)
    found = patched(asking, "apart", {"status": {"phase": "Down"}, "spec": {"size": 5}})
    assert (found["spec"]["size"], found["status"]) == (5, {"phase": "Up"})
    assert found["metadata"]["generation"] == 2


def test_the_schema_is_kept(asking: Asking) -> None:
    error = refusal(lambda: asking.create(widget("bad", "large", color="green", word="A1")))
    assert (error["code"], error["reason"]) == (422, "Invalid")
    assert {it["field"]: it["message"] for it in error["details"]["causes"]} == {
        "spec.size": 'Invalid value: "string": spec.size in body must be of type integer: "string"',
        "spec.color": 'Unsupported value: "green": supported values: "red", "blue"',
        "spec.word": "Invalid value: \"A1\": spec.word in body should match '^[a-z]+$'",
    }
    pruned = asking.create(widget("pruned", unknown=1))
    assert "unknown" not in pruned["spec"]
    error = refusal(lambda: asking.create(widget("strict", unknown=1), field_validation="Strict"))
    assert error["code"] == 400
    assert 'strict decoding error: unknown field "spec.unknown"' in error["message"]


def test_lists_select_by_label_and_come_in_pages(asking: Asking) -> None:
    for number in range(5):
        body = widget(f"page-{number}")
        body["metadata"]["labels"] = {"set": "pages", "half": str(number // 3)}
        asking.create(body)
    found = asking.list(label_selector="set=pages,half notin (1)")
    assert [it["metadata"]["name"] for it in found["items"]] == ["page-0", "page-1", "page-2"]
    names: list[str] = []
    told: str | None = ""
    while told is not None:
        page = asking.list(label_selector="set=pages", limit=2, _continue=told)
        names += [it["metadata"]["name"] for it in page["items"]]
        # What is made meanwhile is in none of the pages: they show one state.
        if told == "":
            body = widget("page-9")
            body["metadata"]["labels"] = {"set": "pages"}
            asking.create(body)
        told = page["metadata"].get("continue")
    assert names == [f"page-{it}" for it in range(5)]


def test_a_watch_goes_on_where_it_was_left(asking: Asking, cluster: KubernetesEmulator) -> None:
    version = asking.create(widget("watched"))["metadata"]["resourceVersion"]
    patched(asking, "watched", {"spec": {"size": 7}})
    asking.widgets.delete_namespaced_custom_object(*WIDGETS, "watched")
    assert seen(asking, version) == [("MODIFIED", "watched", 7), ("DELETED", "watched", 7)]
    cluster.compact()
    with pytest.raises(ApiException) as expired:
        seen(asking, version)
    assert expired.value.status == 410
    # After the error the stream ends, long before its time.
    answer = asking.list(
        watch=True, resource_version=version, timeout_seconds=600, _preload_content=False
    )
    (line,) = answer.data.splitlines()
    told = json.loads(line)
    assert (told["type"], told["object"]["reason"]) == ("ERROR", "Expired")


def seen(asking: Asking, version: str) -> list[tuple[str, str, int]]:
    stream = watch.Watch().stream(
        asking.widgets.list_namespaced_custom_object,
        *WIDGETS,
        resource_version=version,
        timeout_seconds=1,
    )
    return [
        (it["type"], it["object"]["metadata"]["name"], it["object"]["spec"]["size"])
        for it in stream
    ]


def test_what_is_applied_has_an_owner(asking: Asking) -> None:
    def apply(manager: str, size: int, *, force: bool = False) -> Any:
        return asking.kind("Widget", "example.com/v1").server_side_apply(
            body=widget("applied", size, parts=[{"name": manager}]),
            name="applied",
            namespace="default",
            field_manager=manager,
            force_conflicts=force,
        )

    apply("ann", 1)
    error = refusal(lambda: apply("bob", 2))
    assert error["message"] == (
        'Apply failed with 1 conflict: conflict with "ann" using example.com/v1: .spec.size'
    )
    assert (error["code"], error["details"]["causes"][0]["field"]) == (409, ".spec.size")
    apply("bob", 2, force=True)
    found = asking.get("applied")
    assert found["spec"]["size"] == 2
    assert found["spec"]["parts"] == [{"name": "ann"}, {"name": "bob"}]
    # Who applies without what was its own takes it away; what is another's stays.
    body = widget("applied", 2)
    asking.kind("Widget", "example.com/v1").server_side_apply(
        body=body, name="applied", namespace="default", field_manager="bob"
    )
    assert asking.get("applied")["spec"]["parts"] == [{"name": "ann"}]


def test_a_finalizer_holds_what_is_deleted(asking: Asking) -> None:
    body = widget("held")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    asking.create(body)
    asking.widgets.delete_namespaced_custom_object(*WIDGETS, "held")
    assert asking.get("held")["metadata"]["deletionTimestamp"]
    error = refusal(
        lambda: patched(asking, "held", {"metadata": {"finalizers": ["example.com/hold", "a.b/c"]}})
    )
    assert "no new finalizers can be added if the object is being deleted" in error["message"]
    patched(asking, "held", {"metadata": {"finalizers": None}})
    assert refusal(lambda: asking.get("held"))["code"] == 404


def test_a_lease_is_renewed_by_who_saw_it_last(asking: Asking) -> None:
    lease = asking.make(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "leader"},
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
        }
    )
    leases = asking.kind("Lease", "coordination.k8s.io/v1")
    lease["spec"]["holderIdentity"] = "b"
    leases.replace(body=lease, namespace="default")
    lease["spec"]["holderIdentity"] = "c"
    assert refusal(lambda: leases.replace(body=lease, namespace="default"))["code"] == 409
    found = leases.get(name="leader", namespace="default")
    assert found.spec.holderIdentity == "b"


def test_a_watch_tells_the_state_first_when_it_is_asked_to(asking: Asking) -> None:
    body = widget("told")
    body["metadata"]["labels"] = {"set": "told"}
    asking.create(body)
    events = asking.kind("Widget", "example.com/v1").watch(
        namespace="default",
        label_selector="set=told",
        send_initial_events=True,
        resource_version_match="NotOlderThan",
        allow_watch_bookmarks=True,
        timeout=1,
    )
    kinds = [(it["type"], it["raw_object"]["metadata"].get("name")) for it in events]
    assert kinds[:2] == [("ADDED", "told"), ("BOOKMARK", None)]


def test_names_are_made_and_collections_go_and_nothing_is_done_dry(asking: Asking) -> None:
    body = {**widget(""), "metadata": {"generateName": "made-", "labels": {"set": "made"}}}
    names = [asking.create(body)["metadata"]["name"] for _ in range(2)]
    assert len({*names}) == 2 and all(it.startswith("made-") for it in names)
    asking.create(body, dry_run="All")
    assert len(asking.list(label_selector="set=made")["items"]) == 2
    asking.widgets.delete_collection_namespaced_custom_object(*WIDGETS, label_selector="set=made")
    assert asking.list(label_selector="set=made")["items"] == []
