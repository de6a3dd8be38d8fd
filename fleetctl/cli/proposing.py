"""What files would change, found out in this process: for dry runs, `diff` and `plan`.

The same decision that the controller makes, over the same rows, read without it. Loads the models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetctl.clock import SystemClock
from fleetctl.engine.applying import Change, propose
from fleetctl.engine.orders import order_of
from fleetctl.manifest.documents import Document
from fleetctl.manifest.loader import Manifest, load
from fleetctl.stores.base import Stored


def proposed(
    stored: Stored, documents: Sequence[Document], order: Mapping[str, object]
) -> tuple[list[Manifest], list[Change]]:
    """Raises ManifestErrors, and Refused or Conflict as the apply itself would."""
    manifests = load(documents)
    return manifests, propose(stored, manifests, order_of(order), SystemClock().now_s())
