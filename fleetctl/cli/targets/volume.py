"""Words on a command line that name a path in a volume, and the provider that stores it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.common.errors import UsageError
from fleetctl.common.remote import REMOTE
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.kinds.registry import find_kind
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, asset_name
from fleetctl.views.accounts import account_named
from fleetctl.views.kinds import Target
from fleetctl.views.store_reading import must_find, open_reading

if TYPE_CHECKING:
    from fleetctl.providers.contract.volume_files import VolumeFiles


class VolumePath(NamedTuple):
    """A path in a volume. `path` as it was written: a `/` or `/.` at its end has a meaning for
    `cp`."""

    target: Target
    path: str

    @property
    def name(self) -> str:
        """Returns its name at its provider."""
        return asset_name(self.target.name, self.target.namespace)

    @property
    def shown(self) -> str:
        return f"volume/{self.target.name}:/{self.path.lstrip('/')}"


def parse_volume_path(text: str, namespace: str = DEFAULT_NAMESPACE) -> VolumePath | None:
    """Reads `volume/NAME` or `volume/NAME:/path`; None for text that names no volume, such as a
    local path."""
    word, slash, rest = text.partition("/")
    kind = find_kind(word) if slash else None
    name, _, path = rest.partition(":")
    if kind is None or kind.name != "Volume" or not name or "/" in name:
        return None
    return VolumePath(Target(kind, name, namespace), path)


def require_volume_path(text: str, namespace: str) -> VolumePath:
    """Raises UsageError for text that names no volume."""
    place = parse_volume_path(text, namespace)
    if place is None:
        raise UsageError(
            f"`{text}` is not a path in a volume", hint="write it as volume/NAME:/path"
        )
    return place


def files_of(place: VolumePath, home: Path) -> VolumeFiles:
    """Returns the files of the volume's provider, by the object in the store. Raises NotFound."""
    with open_reading(home) as reading:
        provider = must_find(place.target, reading).spec().get("provider") or DEFAULT_PROVIDER
    if (remote := REMOTE.get()) is not None:
        from fleetctl.cli.team.remote_files import RemoteVolumeFiles
        from fleetctl.cli.team.server_fleet import ServerFleet

        assert isinstance(remote, ServerFleet)
        return RemoteVolumeFiles(remote.client, place.target.name, place.target.namespace)
    from fleetctl.wiring.account_registry import volume_files

    return volume_files(account_named(str(provider), home), home)
