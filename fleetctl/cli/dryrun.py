"""`fleetctl apply --dry-run`: what an apply would answer, found out without storing anything."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fleetctl.cli.kinds import Target, kind_of
from fleetctl.cli.reading import Reading, open_reading
from fleetctl.cli.render import Screen
from fleetctl.cli.text import safe
from fleetctl.engine.wishes import differences
from fleetctl.home import home
from fleetctl.manifest.documents import Document
from fleetctl.manifest.loader import Manifest, load
from specs.kinds import dump_spec


def dry_run(documents: Sequence[Document], screen: Screen) -> int:
    manifests = load(documents)
    with open_reading(home()) as reading:
        for manifest in manifests:
            key = safe(f"{manifest.kind.lower()}/{manifest.name}")
            outcome, changes = _outcome(manifest, reading)
            screen.data(f"{key} {outcome} (dry run)" + (f"  {safe(changes)}" if changes else ""))
            for warning in manifest.warnings:
                screen.warn(safe(warning))
    return 0


def _outcome(manifest: Manifest, reading: Reading) -> tuple[str, str]:
    """The word that apply would say, and what would change."""
    seen = reading.find(Target(kind_of(manifest.kind), manifest.name))
    if seen is None or seen.resource.deleted_at_s is not None:
        return "created", ""
    changes = differences(json.dumps(seen.spec()), dump_spec(manifest.spec))
    same = (
        not changes
        and seen.resource.labels == dict(manifest.metadata.labels)
        and seen.resource.annotations == dict(manifest.metadata.annotations)
    )
    return "unchanged" if same else "configured", ", ".join(changes)
