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
_FLEET = "fleet"
_RUN = "run"
_WORK = "work"
_MADE_AT = "made-at"
_PARENT = "parent"


def sandbox_name(run: str) -> str:
    """The name of the sandbox that `run` makes."""
    return _fit_text(run, NAME_CHARS_MAX)


def group_name(store_id: str) -> str:
    """Returns the name of the group of all sandboxes of a store, where a provider has groups."""
    return _fit_text(f"{GROUP}{store_id}", NAME_CHARS_MAX)


def fleet_tag(store_id: str) -> dict[str, str]:
    """Returns the tag that every sandbox of a store carries, and no other sandbox."""
    return {_FLEET: _fit_text(store_id, TAG_CHARS_MAX)}


def run_tag(run: str) -> str:
    """Returns the tag for the sandbox of a run."""
    return _fit_text(run, TAG_CHARS_MAX)


def sandbox_tags(
    request: RunRequest,
    store_id: str,
    now_s: float,
) -> dict[str, str]:
    """Returns the tags of a create request: the sandbox's owner and purpose."""
    kind, name, namespace = split_key(request.resource)
    elsewhere = {"namespace": namespace} if namespace != DEFAULT_NAMESPACE else {}
    if request.session is not None and request.session.parent:
        elsewhere[_PARENT] = _fit_text(request.session.parent, TAG_CHARS_MAX)
    return {
        **fleet_tag(store_id),
        _RUN: run_tag(request.run),
        "uid": _fit_text(request.uid, TAG_CHARS_MAX),
        # In one, because a provider may limit how many tags there are.
        _WORK: f"{request.attempt}.{work_of_order(request)}",
        "index": str(request.index),
        "kind": _fit_text(kind, TAG_CHARS_MAX),
        "name": _fit_text(name or kind, TAG_CHARS_MAX),
        **elsewhere,
        # Ours: not every provider's list has a sandbox's creation time.
        _MADE_AT: str(int(now_s)),
    }


def helper_tags(
    store_id: str,
    sandbox: str,
    volume: str,
    now_s: float,
) -> dict[str, str]:
    """Returns the tags of a sandbox that shows a volume to one command of a user. No run is in
    it.
    """
    return {
        **(fleet_tag(store_id) if store_id else {}),
        _RUN: _fit_text(sandbox, TAG_CHARS_MAX),
        "kind": "Volume",
        "name": _fit_text(volume, TAG_CHARS_MAX),
        _MADE_AT: str(int(now_s)),
    }


def is_helper(carried: dict[str, str]) -> bool:
    return carried.get("kind") == "Volume"


def is_ours(carried: dict[str, str], store_id: str) -> bool:
    return carried.get(_FLEET) == fleet_tag(store_id)[_FLEET]


def is_of(
    carried: dict[str, str],
    store_id: str,
    run: str,
) -> bool:
    """Returns whether the sandbox was made by our store, for this run."""
    return is_ours(carried, store_id) and carried.get(_RUN) == _fit_text(run, TAG_CHARS_MAX)


def store_of(carried: dict[str, str]) -> str:
    """Returns the store of a tag, as far as a tag can name it; "" without a tag."""
    if carried.get(_RUN):
        return carried.get(_FLEET, "")
    return ""


def fleet_of(carried: dict[str, str]) -> str:
    """Returns the store of the tag on an object that is no sandbox; "" without a tag."""
    return carried.get(_FLEET, "")


def tag_of(store_id: str) -> str:
    """Returns the value of `store_of` for sandboxes of this store."""
    return fleet_tag(store_id)[_FLEET]


def run_of(carried: dict[str, str]) -> str:
    return carried.get(_RUN, "")


def work_of(carried: dict[str, str]) -> str:
    """Returns the mark of orphans.work_mark; "" without a mark."""
    return carried.get(_WORK, "").partition(".")[2]


def claim_tags(
    carried: dict[str, str],
    store_id: str,
    uid: str,
) -> dict[str, str]:
    """The tags of a sandbox that passes to another store, for its object `uid`."""
    return {**carried, **fleet_tag(store_id), "uid": _fit_text(uid, TAG_CHARS_MAX)}


def made_at_s(carried: dict[str, str]) -> float:
    """Returns when the sandbox was made; 0.0, long ago, when it is unknown."""
    text = carried.get(_MADE_AT, "")
    if text.isdigit():
        return float(text)
    return 0.0


def _fit_text(text: str, chars_max: int) -> str:
    """`text` if a provider takes it, else its hash: as different for different texts."""
    if len(text) <= chars_max and _PLAIN.fullmatch(text):
        return text
    return "x-" + blake2b(text.encode(), digest_size=20).hexdigest()


def of_tags(
    provider: str,
    handle: str,
    tags: dict[str, str],
) -> Orphan | None:
    """Returns a remote sandbox by its tags; None for one that is not ours."""
    store = store_of(tags)
    if not store:
        return None
    kind = tags.get("kind", "")
    name = tags.get("name", "")
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
        parent=tags.get(_PARENT, ""),
    )
