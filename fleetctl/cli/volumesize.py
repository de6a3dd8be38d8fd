"""The size of a volume, for people: exact, or `-` where it is not known; never a guess."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.cli.columns import NONE, Column
from fleetctl.cli.text import byte_size
from fleetctl.cli.view import READY, View
from fleetctl.errors import NotFound
from fleetctl.home import home
from specs.namespaces import asset_name

# A list must stay quick: 10,000 files take some 20 ms.
LISTED_FILES_MAX = 10_000


def with_size(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of volumes with one more behind the provider."""
    at = [column.title for column in columns].index("PROVIDER") + 1
    return (*columns[:at], Column("SIZE", _listed), *columns[at:])


def _listed(seen: View, _now_s: float) -> str:
    """Of this machine's volumes alone; a list asks no provider."""
    if seen.spec().get("provider", "local") != "local" or seen.phase != READY:
        return NONE
    from fleetctl.providers.local.paths import Layout
    from fleetctl.providers.local.sizes import total_bytes

    directory = Layout(home()).volume(_at_provider(seen))
    return _shown(total_bytes(directory, LISTED_FILES_MAX))


def asked(seen: View) -> str:
    """What the provider says, which may take it some seconds."""
    if seen.phase != READY:
        return NONE
    import asyncio

    from fleetctl.cli.accounts import account_named
    from fleetctl.wiring import volume_files

    try:
        account = account_named(str(seen.spec().get("provider") or "local"), home())
    except NotFound:
        return NONE  # nobody declares that provider any more
    files = volume_files(account, home())
    return _shown(asyncio.run(files.size(_at_provider(seen))))


def _at_provider(seen: View) -> str:
    return asset_name(seen.resource.name, seen.resource.namespace)


def _shown(size: int | None) -> str:
    return NONE if size is None else byte_size(size)
