"""Names and tags of sandboxes. A name is a function of the run's alone, so that a sandbox whose id
was lost is found again by whoever knows the run.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.contract.orphans import Orphan
from fleetctl.providers.contract.orphans import work_of as work_of_order
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, object_key, split_key

NAME_CHARS_MAX = 64
TAG_CHARS_MAX = 63
GROUP = "fleetctl-"  # begins the name of what holds a store's sandboxes
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FLEET, _RUN, _WORK, _MADE_AT = "fleet", "run", "work", "made-at"


def sandbox_name(run: str) -> str:
    """The name of the sandbox that `run` makes."""
    return _fitting(run, NAME_CHARS_MAX)


def group_name(store_id: str) -> str:
    """What holds all sandboxes of one store, where a provider has such a thing."""
    return _fitting(f"{GROUP}{store_id}", NAME_CHARS_MAX)


def fleet_tag(store_id: str) -> dict[str, str]:
    """What every sandbox of a store carries, and no other."""
    return {_FLEET: _fitting(store_id, TAG_CHARS_MAX)}


def tags(request: RunRequest, store_id: str, now_s: float) -> dict[str, str]:
    """What a create request carries: whose the sandbox is, and what for."""
    kind, name, namespace = split_key(request.resource)
    elsewhere = {"namespace": namespace} if namespace != DEFAULT_NAMESPACE else {}
    return {
        **fleet_tag(store_id),
        _RUN: _fitting(request.run, TAG_CHARS_MAX),
        "uid": _fitting(request.uid, TAG_CHARS_MAX),
        # In one, because a provider may limit how many tags there are.
        _WORK: f"{request.attempt}.{work_of_order(request)}",
        "index": str(request.index),
        "kind": _fitting(kind, TAG_CHARS_MAX),
        "name": _fitting(name or kind, TAG_CHARS_MAX),
        **elsewhere,
        # Ours: not every provider's list says when a sandbox was made.
        _MADE_AT: str(int(now_s)),
    }


def helper_tags(store_id: str, sandbox: str, volume: str, now_s: float) -> dict[str, str]:
    """What a sandbox carries that shows a volume to one command of a person. Nothing runs in it."""
    return {
        **(fleet_tag(store_id) if store_id else {}),
        _RUN: _fitting(sandbox, TAG_CHARS_MAX),
        "kind": "Volume",
        "name": _fitting(volume, TAG_CHARS_MAX),
        _MADE_AT: str(int(now_s)),
    }


def is_helper(carried: dict[str, str]) -> bool:
    return carried.get("kind") == "Volume"


def is_ours(carried: dict[str, str], store_id: str) -> bool:
    return carried.get(_FLEET) == fleet_tag(store_id)[_FLEET]


def is_of(carried: dict[str, str], store_id: str, run: str) -> bool:
    """Whether the sandbox was made by our store, for this run."""
    return is_ours(carried, store_id) and carried.get(_RUN) == _fitting(run, TAG_CHARS_MAX)


def store_of(carried: dict[str, str]) -> str:
    """The store whose tag it is, as far as a tag can say it; "" when there is none."""
    return carried.get(_FLEET, "") if carried.get(_RUN) else ""


def fleet_of(carried: dict[str, str]) -> str:
    """The store whose tag it is, of what is no sandbox; "" when there is none."""
    return carried.get(_FLEET, "")


def tag_of(store_id: str) -> str:
    """What `store_of` says of sandboxes of this store."""
    return fleet_tag(store_id)[_FLEET]


def run_of(carried: dict[str, str]) -> str:
    return carried.get(_RUN, "")


def work_of(carried: dict[str, str]) -> str:
    """As orphans.work_mark tells it; "" when nothing says so."""
    return carried.get(_WORK, "").partition(".")[2]


def claimed(carried: dict[str, str], store_id: str, uid: str) -> dict[str, str]:
    """The tags of a sandbox that passes to another store, for its object `uid`."""
    return {**carried, **fleet_tag(store_id), "uid": _fitting(uid, TAG_CHARS_MAX)}


def made_at_s(carried: dict[str, str]) -> float:
    """When the sandbox was made; 0.0, long ago, when nothing says so."""
    text = carried.get(_MADE_AT, "")
    return float(text) if text.isdigit() else 0.0


def _fitting(text: str, chars_max: int) -> str:
    """`text` if a provider takes it, else its hash: as different for different texts."""
    if len(text) <= chars_max and _PLAIN.fullmatch(text):
        return text
    return "x-" + blake2b(text.encode(), digest_size=20).hexdigest()


def of_tags(provider: str, handle: str, tags: dict[str, str]) -> Orphan | None:
    """A remote sandbox by what it carries; None for one that is not ours."""
    store = store_of(tags)
    if not store:
        return None
    kind, name = tags.get("kind", ""), tags.get("name", "")
    job = (
        object_key(kind, name, tags.get("namespace") or DEFAULT_NAMESPACE) if kind and name else ""
    )
    return Orphan(
        provider=provider,
        handle=handle,
        store=store,
        run=run_of(tags),
        job=job,
        index=tags.get("index", ""),
        created_at_s=made_at_s(tags),
        uid=tags.get("uid", ""),
        work=work_of(tags),
    )
