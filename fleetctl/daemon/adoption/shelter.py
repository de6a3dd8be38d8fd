"""Makes the object for an orphan whose own is missing: its one sandbox is the object's only run.

Called by enroll.py.
"""

from __future__ import annotations

import json
from dataclasses import replace

from fleetctl.apply.propose import propose_changes, store_changes
from fleetctl.apply.request.options import ApplyOptions
from fleetctl.common.errors import Refused
from fleetctl.controllers.model import Resource
from fleetctl.daemon.adoption.targets import index_of
from fleetctl.manifest import Document, load_manifests
from fleetctl.providers.contract.orphans import Orphan
from fleetctl.specs.values.namespaces import split_key
from fleetctl.stores.base import Store

NAME_CHARS_MAX = 63
MADE_MAX = 1000  # objects made for orphans with the same name, before an error is reported

# The program of an object that is made for orphans, should a user make it start work: the work of
# its sandboxes is unknown here.
_UNKNOWN_WORK = (
    "echo 'this object was made to adopt a sandbox; apply the manifest of its work to run it again'"
    " >&2; exit 1"
)


def make_orphan_object(
    store: Store,
    orphan: Orphan,
    uid: str,
    now_s: float,
) -> Resource:
    """Stores the object at once. It starts no work by itself."""
    text = json.dumps(_build_document(store, orphan))
    document = Document(
        path="adopted",
        text=text,
        dir="/",
    )
    (change,) = propose_changes(
        store, load_manifests([document]), ApplyOptions(unjudged=True), now_s
    )
    made = replace(change.after, uid=uid)
    store_changes(store, [replace(change, after=made)], now_s)
    resource = store.resources.get(made.kind, made.name, made.namespace)
    assert resource is not None
    return resource


def _build_document(store: Store, orphan: Orphan) -> dict[str, object]:
    _, name, namespace = split_key(orphan.job)
    task: dict[str, object] = {"run": orphan.run}
    if orphan.job:
        task["of"] = orphan.job
    if index_of(orphan) is not None:
        task["index"] = index_of(orphan)
    return {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "BatchJob",
        "metadata": {
            "name": _free_name(store, f"adopted-{name or orphan.run}", namespace),
            "namespace": namespace,
        },
        "spec": {
            "tasks": {"items": [task]},
            "parallelism": 0,  # it starts no work: its one sandbox is its only run
            "maxInfraRetries": 0,
            "cache": {"policy": "Never"},
            "placement": {"provider": orphan.provider},
            "template": {"script": _UNKNOWN_WORK},
        },
    }


def _free_name(
    store: Store,
    wanted: str,
    namespace: str,
) -> str:
    for number in range(1, MADE_MAX + 1):
        end = f"-{number}" if number > 1 else ""
        name = wanted[: NAME_CHARS_MAX - len(end)].rstrip("-") + end
        if store.resources.get("BatchJob", name, namespace) is None:
            return name
    raise Refused(f"there are {MADE_MAX:,} objects named `{wanted}`", hint="delete some")
