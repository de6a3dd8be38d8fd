"""Words on a command line that name a place in a volume, and the provider that keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.cli.targets.accounts import account_named
from fleetctl.common.errors import UsageError
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.kinds.registry import find_kind
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, asset_name
from fleetctl.views.kinds import Target
from fleetctl.views.reading import must_find, open_reading

if TYPE_CHECKING:
    from fleetctl.providers.contract.volume_files import VolumeFiles


class VolumePlace(NamedTuple):
    """`path` as it was written: a `/` or `/.` at its end means something to `cp`."""

    target: Target
    path: str

    @property
    def name(self) -> str:
        """What it is called at its provider."""
        return asset_name(self.target.name, self.target.namespace)

    @property
    def shown(self) -> str:
        return f"volume/{self.target.name}:/{self.path.lstrip('/')}"


def volume_place(text: str, namespace: str = DEFAULT_NAMESPACE) -> VolumePlace | None:
    """`volume/NAME` or `volume/NAME:/path`; None for what names no volume, such as a local path."""
    word, slash, rest = text.partition("/")
    kind = find_kind(word) if slash else None
    name, _, path = rest.partition(":")
    if kind is None or kind.name != "Volume" or not name or "/" in name:
        return None
    return VolumePlace(Target(kind, name, namespace), path)


def must_be_a_place(text: str, namespace: str) -> VolumePlace:
    """Raises UsageError for what names no volume."""
    place = volume_place(text, namespace)
    if place is None:
        raise UsageError(
            f"`{text}` is not a place in a volume", hint="write it as volume/NAME:/path"
        )
    return place


def files_of(place: VolumePlace, home: Path) -> VolumeFiles:
    """The files of the volume's provider, by the object in the store. Raises NotFound."""
    with open_reading(home) as reading:
        provider = must_find(place.target, reading).spec().get("provider") or DEFAULT_PROVIDER
    from fleetctl.wiring.accounts import volume_files

    return volume_files(account_named(str(provider), home), home)
