"""What a provider offers about sandboxes that nobody may remember. Used by `fleetctl orphans`,
which builds it through wiring.py without a controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from specs.namespaces import DEFAULT_NAMESPACE, object_key


class Stray(NamedTuple):
    """A sandbox that carries a tag of ours and holds a machine. Whether it is remembered is for the
    caller to find out.
    """

    provider: str
    handle: str
    store: str  # whose tag it carries
    run: str  # that it was made for
    job: str  # its key, for people; "" where the tags do not say
    index: str  # type: ignore[assignment]  # hides tuple.index, which nobody wants of one
    created_at_s: float  # 0.0 where it is not known


class Strays(Protocol):
    async def found(self) -> Sequence[Stray]:
        """Every sandbox with a tag of any store, as far as the provider's list knows.

        Raises Refused where the provider is not set up, Unavailable when it cannot be asked.
        """
        ...

    async def remove(self, stray: Stray) -> None:
        """End the sandbox and return once that is confirmed. No error when it is gone."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


def of_tags(provider: str, handle: str, tags: dict[str, str]) -> Stray | None:
    """A remote sandbox by what it carries; None for one that is not ours."""
    from fleetctl.providers.remote import names

    store = names.store_of(tags)
    if not store:
        return None
    kind, name = tags.get("kind", ""), tags.get("name", "")
    job = (
        object_key(kind, name, tags.get("namespace") or DEFAULT_NAMESPACE) if kind and name else ""
    )
    made_at_s = names.made_at_s(tags)
    return Stray(provider, handle, store, names.run_of(tags), job, tags.get("index", ""), made_at_s)
