"""How what we make in a cluster is marked: labels to select by, annotations for all else. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.kubernetes.connection import Object
from fleetctl.providers.remote.sandboxes import names

PREFIX = "fleetctl.dev/"
MANAGED = {"app.kubernetes.io/managed-by": "fleetctl"}
# A label's value is short and plain; the others may be neither.
_LABELS = ("fleet", "run", "uid")
JOB_NAME = "batch.kubernetes.io/job-name"
JOB_INDEX = "batch.kubernetes.io/job-completion-index"


def marks(tags: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """(labels, annotations) of what carries these tags; see remote/sandboxes/names.py."""
    labels = {f"{PREFIX}{name}": tags[name] for name in _LABELS if name in tags}
    others = {f"{PREFIX}{name}": text for name, text in tags.items() if name not in _LABELS}
    return {**MANAGED, **labels}, others


def tags_of(found: Object) -> dict[str, str]:
    """The tags that an object carries."""
    metadata = found.get("metadata") or {}
    carried = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    return {
        key.removeprefix(PREFIX): str(text)
        for key, text in carried.items()
        if key.startswith(PREFIX)
    }


def selector(store_id: str) -> str:
    """What selects all that one store made, and no other."""
    return ",".join(f"{PREFIX}{name}={text}" for name, text in names.fleet_tag(store_id).items())
