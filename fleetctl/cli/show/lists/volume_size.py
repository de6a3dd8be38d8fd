"""The size of a volume, for people: exact, or `-` where it is not known; never a guess."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.common.errors import NotFound
from fleetctl.common.home import home
from fleetctl.common.text import byte_size
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.values.namespaces import asset_name
from fleetctl.views.columns import Column
from fleetctl.views.objects import NONE, READY, View


def with_size(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of volumes with one more behind the provider."""
    at = [column.title for column in columns].index("PROVIDER") + 1
    return (*columns[:at], Column("SIZE", _listed), *columns[at:])


def _listed(seen: View, _now_s: float) -> str:
    """Of this machine's volumes alone; a list asks no provider."""
    if seen.phase != READY:
        return NONE
    from fleetctl.wiring.plugins import listed_bytes

    sort = str(seen.spec().get("provider") or DEFAULT_PROVIDER)
    return _shown(listed_bytes(sort, home(), _at_provider(seen)))


def asked(seen: View) -> str:
    """What the provider says, which may take it some seconds."""
    if seen.phase != READY:
        return NONE
    import asyncio

    from fleetctl.cli.targets.accounts import account_named
    from fleetctl.wiring.accounts import volume_files

    try:
        account = account_named(str(seen.spec().get("provider") or DEFAULT_PROVIDER), home())
    except NotFound:
        return NONE  # nobody declares that provider any more
    files = volume_files(account, home())
    return _shown(asyncio.run(files.size(_at_provider(seen))))


def _at_provider(seen: View) -> str:
    return asset_name(seen.resource.name, seen.resource.namespace)


def _shown(size: int | None) -> str:
    return NONE if size is None else byte_size(size)
