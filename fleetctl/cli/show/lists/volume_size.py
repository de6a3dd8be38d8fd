"""The size of a volume on screens: exact, or `-` where it is not known; never a guess."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.common.errors import NotFound
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import byte_size
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.values.namespaces import asset_name
from fleetctl.views.columns import TableColumn
from fleetctl.views.kinds import Target
from fleetctl.views.objects import NONE, READY, View
from fleetctl.views.store_reading import StoreReading


def with_size(columns: Sequence[TableColumn]) -> tuple[TableColumn, ...]:
    """Returns the columns of volumes with one more behind the provider."""
    at = [column.title for column in columns].index("PROVIDER") + 1
    return (*columns[:at], TableColumn("SIZE", _format_listed_size), *columns[at:])


def _format_listed_size(seen: View, _now_s: float) -> str:
    """Returns the size of this machine's volumes alone; a list sends no request to a provider."""
    if seen.phase != READY:
        return NONE
    from fleetctl.wiring.plugins import listed_bytes

    sort = str(seen.spec().get("provider") or DEFAULT_PROVIDER)
    return _format_size(listed_bytes(sort, find_state_dir(), _at_provider(seen)))


def query_size(seen: View) -> str:
    """Requests the size from the provider, which may take some seconds."""
    if seen.phase != READY:
        return NONE
    import asyncio

    from fleetctl.cli.targets.volume import VolumePath, files_of

    target = Target(seen.kind, seen.resource.name, seen.resource.namespace)
    try:
        files = files_of(VolumePath(target, ""), find_state_dir())
    except NotFound:
        return NONE  # the provider is not declared any more
    return _format_size(asyncio.run(files.size(_at_provider(seen))))


def volume_lines(
    seen: View,
    _reading: StoreReading,
    _now_s: float,
) -> Iterator[tuple[str, str]]:
    """Yields the lines of `describe`."""
    yield "Size", query_size(seen)


def _at_provider(seen: View) -> str:
    return asset_name(seen.resource.name, seen.resource.namespace)


def _format_size(size: int | None) -> str:
    if size is None:
        return NONE
    return byte_size(size)
