"""`fleetctl apply --dry-run`: what an apply would answer, found out without storing anything."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fleetctl.cli.kinds import Target, kind_of
from fleetctl.cli.reading import Reading, open_reading
from fleetctl.cli.render import Screen
from fleetctl.cli.text import safe
from fleetctl.home import home
from fleetctl.manifest.documents import Document
from fleetctl.manifest.loader import Manifest, load
from specs.kinds import dump_spec


def dry_run(documents: Sequence[Document], screen: Screen) -> int:
    manifests = load(documents)
    with open_reading(home()) as reading:
        for manifest in manifests:
            key = safe(f"{manifest.kind.lower()}/{manifest.name}")
            screen.data(f"{key} {_outcome(manifest, reading)} (dry run)")
            for warning in manifest.warnings:
                screen.warn(safe(warning))
    return 0


def _outcome(manifest: Manifest, reading: Reading) -> str:
    """The word that apply would say."""
    seen = reading.find(Target(kind_of(manifest.kind), manifest.name))
    if seen is None or seen.resource.deleted_at_s is not None:
        return "created"
    same = (
        seen.spec() == json.loads(dump_spec(manifest.spec))
        and seen.resource.labels == dict(manifest.metadata.labels)
        and seen.resource.annotations == dict(manifest.metadata.annotations)
    )
    return "unchanged" if same else "configured"
