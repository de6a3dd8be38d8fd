"""The interface for sandboxes without an owner. Used by `fleetctl orphans`, which builds it through
wiring without a controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fleetctl.providers.contract.base import RunRequest
from fleetctl.specs.values.hashing import params_hash

if TYPE_CHECKING:
    from fleetctl.controllers.planning.kind_controller import Unit

SANDBOX = "sandbox"
FUNCTION = "function"
VOLUME = "volume"
SNAPSHOT = "snapshot"
# Replaces a store's tag on sandboxes of interpreters: they need no store.
INTERPRETERS = "interpreters"
SHARED = "shared"  # the work of a sandbox in which tasks take turns
GONE_HINT = "`fleetctl orphans` lists what is there"
_MARK_CHARS = 12  # of each hash: enough to distinguish two templates of an object


class Orphan(NamedTuple):
    """A sandbox that carries a tag of ours and holds a machine; a function with such a tag; a
    volume that this store has used. Whether it is remembered is for the caller to find out.
    """

    provider: str
    handle: str
    store: str  # whose tag it carries
    run: str  # that it was made for
    job: str  # its key, for messages; "" where the tags have no key
    index: str  # type: ignore[assignment]  # hides tuple.index, which has no use here
    created_at_s: float  # 0.0 where it is not known
    uid: str = ""  # of its object, in the store that made it
    work: str = ""  # as work_mark returns it, SHARED, or "" when it is unknown
    kind: str = SANDBOX
    parent: str = ""  # of an interpreter's sandbox: the run whose code asked for it
    # For a function: its callers from this state directory, `job-UID` or `function-NAME`.
    users: tuple[str, ...] = ()


class Orphans(Protocol):
    async def find_all(self) -> Sequence[Orphan]:
        """Returns every sandbox and function with a tag of any store, as far as the provider's list
        knows, and the volumes that this store has used.

        Raises Refused where the provider is not set up, Unavailable when it cannot be asked.
        """
        ...

    async def remove(self, orphan: Orphan) -> None:
        """Ends the sandbox, stops the function, or deletes the volume with its data; returns once
        that is confirmed. No error when it is gone.
        """
        ...

    async def claim(
        self,
        orphan: Orphan,
        store_id: str,
        uid: str,
    ) -> None:
        """Makes it a sandbox of this store, for the object `uid`; its work goes on untouched.

        Returns once its tags name the store. Raises Refused when it is gone, Unavailable when that
        is unknown.
        """
        ...

    async def close(self) -> None:
        """Closes connections."""
        ...


def a_volume(provider: str, name: str) -> Orphan:
    """A volume that this store has used; volumes carry no tag."""
    return Orphan(
        provider,
        name,
        "",
        "",
        "",
        "",
        0.0,
        kind=VOLUME,
    )


def mark_of(unit: Unit) -> str:
    """The mark of what a unit is now, with all its parameters."""
    return work_mark(unit.template_hash, params_hash(unit.params))


def work_mark(template_hash: str, params_hash: str) -> str:
    """Returns a mark that is equal for equal work, in characters that every tag may have."""
    return f"{template_hash[:_MARK_CHARS]}-{params_hash[:_MARK_CHARS]}"


def work_of(request: RunRequest) -> str:
    """Returns the mark of its work on the sandbox that `request` makes."""
    if request.reusable:
        return SHARED
    return work_mark(request.template_hash, params_hash(request.params))
