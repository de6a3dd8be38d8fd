"""The one file that names concrete stores and providers. Imported by cli; each import happens when
it is needed.

Adding a provider: its package under providers/, one line in PROVIDERS, and an extra in
pyproject.toml.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import cast

from fleetctl.clock import Clock
from fleetctl.providers.base import Backend, Notify
from fleetctl.stores.base import Store

Make = Callable[..., Backend]

# name -> module:factory, called with (home, store_id=, notify=)
PROVIDERS = {
    "local": "fleetctl.providers.local.provider:LocalProvider",
}


def open_store(home: Path, clock: Clock) -> Store:
    """Become the writer of the store below `home`. Raises StoreError when another one is."""
    from fleetctl.stores.sqlite import open_store as open_sqlite

    return open_sqlite(home, clock)


def build_providers(home: Path, *, store_id: str, notify: Notify) -> dict[str, Backend]:
    """Every provider that is built in, by name."""
    providers: dict[str, Backend] = {}
    for name, where in PROVIDERS.items():
        module, _, factory = where.partition(":")
        make = cast(Make, getattr(import_module(module), factory))
        providers[name] = make(home, store_id=store_id, notify=notify)
    return providers
