"""Carries a person's spec to the store, as the controller process does for a command."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from fleetctl.apply.write import commit
from fleetctl.apply.write.requeue import RetryChoice, requeue_units
from fleetctl.common.errors import Conflict, NotFound
from fleetctl.controllers.model import Resource
from fleetctl.manifest import Manifest
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, own_name
from fleetctl.stores.base import Store
from tests.simulation.scenario import Desired

# What a newer or broken program may have left behind: it mentions a template, so it is not an
# asset.
UNREADABLE_SPEC = '{"template": {"command": ["work"]}, "tasks": {"items": "none of our forms"}}'


def carry_out(store: Store, desired: Desired, *, now_s: float) -> str:
    """Durable when this returns; doing it again, because no answer came, changes nothing.

    Returns apply's word for it: created, configured or unchanged; `said` for the other verbs.
    """
    name, within = own_name(desired.name), namespace_of(desired)
    match desired.verb:
        case "apply":
            manifests = [manifest_of(it) for it in (desired, *desired.beside)]
            return commit.apply_manifests(store, manifests, now_s)[len(manifests) - 1].outcome
        case "poison":
            _poison(store, desired, now_s)
        case "delete":
            # Gone already: the first time got no answer, but was heard.
            with contextlib.suppress(NotFound):
                commit.delete_object(store, desired.kind, name, now_s, namespace=within)
        case "damage":
            _damage(store, desired.kind, name, within)
        case "overtake":
            _overtake(store, desired.kind, name, now_s, within)
        case "retry" | "rerun":
            request = f"{desired.verb} {desired.name} {desired.at_s}"
            choice = RetryChoice("all" if desired.verb == "retry" else "rerun", request=request)
            requeue_units(store, desired.kind, name, choice, now_s, namespace=within)
        case _:
            wanted = desired.verb == "suspend"
            commit.suspend_object(store, desired.kind, name, now_s, wanted=wanted, namespace=within)
    return "said"


def namespace_of(desired: Desired) -> str:
    return desired.name.rpartition(".")[0] or DEFAULT_NAMESPACE


def manifest_of(desired: Desired) -> Manifest:
    spec = KINDS[desired.kind].spec.model_validate(desired.spec)
    name = own_name(desired.name)
    return Manifest(
        desired.kind,
        name,
        Metadata(name=name, namespace=namespace_of(desired), labels=desired.labels),
        spec,
        "simulated.yaml",
        1,
    )


def _poison(store: Store, desired: Desired, now_s: float) -> None:
    if store.resources.get(desired.kind, desired.name) is None:
        made = Resource(
            "poison-uid", desired.kind, desired.name, 1, 0, UNREADABLE_SPEC, "", {}, {}, now_s
        )
        with store.transaction():
            store.resources.put(made, expected_version=None)


def _damage(store: Store, kind: str, name: str, within: str) -> None:
    known = store.resources.get(kind, name, within)
    if known is not None and known.spec != UNREADABLE_SPEC:
        with store.transaction():
            store.resources.put(
                replace(known, spec=UNREADABLE_SPEC, generation=known.generation + 1),
                expected_version=known.version,
            )


def _overtake(store: Store, kind: str, name: str, now_s: float, within: str) -> None:
    """One person deletes it between another's reading and writing."""
    read = store.resources.get(kind, name, within)
    if read is None:
        return  # deleted the first time, which got no answer
    commit.delete_object(store, kind, name, now_s, namespace=within)
    edited = replace(read, labels={"edited": "late"}, deleted_at_s=None)
    with contextlib.suppress(Conflict), store.transaction():
        store.resources.put(edited, expected_version=read.version)
