"""Manifests checked in this process: for validate, for a dry run and for `delete -f`.

Loads the models, which costs a fifth of a second; apply leaves that to the controller.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.cli.files import documents_of
from fleetctl.cli.kinds import Target, kind_of
from fleetctl.manifest.loader import Manifest, load


def load_files(names: Sequence[str]) -> list[Manifest]:
    """Raises ManifestErrors with everything that is wrong in any file."""
    return load(documents_of(names))


def named_objects(names: Sequence[str]) -> list[Target]:
    """The objects that manifests name, the last first: what others use goes after its users."""
    return [Target(kind_of(it.kind), it.name) for it in reversed(load_files(names))]
