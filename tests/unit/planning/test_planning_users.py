"""What an apply changes of objects that it does not name: whoever uses what becomes another, once
each, and never beside its own end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from fleetctl.apply.change import Change
from fleetctl.apply.deletion import PruneLimit
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions
from fleetctl.apply.write.store_changes import write_changes
from fleetctl.manifest import Document, load_manifests
from fleetctl.stores.base import Store
from fleetctl.stores.read.read_only import open_scratch


@pytest.fixture
def store() -> Store:
    return open_scratch()[0]


def document(kind: str, name: str, spec: Mapping[str, Any]) -> str:
    about = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": kind, "metadata": {"name": name}}
    return json.dumps({**about, "spec": spec})


def function(seed: str = "1") -> str:
    return document("Function", "embed", {"provider": "modal", "env": {"SEED": seed}})


def endpoint(model: str = "q") -> str:
    spec = {"servers": [{"url": "https://a/v1"}], "models": {"chat": model}, "reach": "Direct"}
    return document("Endpoint", "small", spec)


def job() -> str:
    template = {"function": "embed", "endpoints": ["small"], "python": "SUBMIT(a=1)"}
    spec = {"completions": 2, "placement": {"provider": "modal"}, "template": template}
    return document("BatchJob", "work", spec)


def apply(store: Store, *texts: str, **how: Any) -> dict[str, Change]:
    manifests = load_manifests([Document(f"{at}.json", text, "/") for at, text in enumerate(texts)])
    changes = propose_changes(store, manifests, ApplyOptions(**how), 5.0)
    with store.transaction():
        write_changes(store, changes, 5.0)
    assert len({it.key for it in changes}) == len(changes)
    return {it.key: it for it in changes}


def test_who_uses_two_things_that_become_others_is_changed_once(store: Store) -> None:
    apply(store, function(), endpoint(), job())
    found = apply(store, function("2"), endpoint("r"))["batchjob/work"]
    assert [it.path for it in found.fields] == ["function", "models"]
    assert found.note == "calls function/embed, asks endpoint/small"
    assert found.after.generation == 2
    assert apply(store, function("2"), endpoint("r")).keys() == {
        "function/embed",
        "endpoint/small",
    }


def test_what_is_pruned_is_not_changed_before(store: Store) -> None:
    apply(store, function(), endpoint(), job(), applyset="team")
    found = apply(store, function("2"), endpoint(), applyset="team", pruning=PruneLimit(most=1))
    assert found["batchjob/work"].outcome == "pruned"
    assert [row.key for row in store.resources.list() if row.deleted_at_s is not None] == [
        "batchjob/work"
    ]
