"""Encodes an order for its way to a guest. Called by providers; pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from fleetctl.guest.posix.order import posix_order


def order_argument(order: Mapping[str, Any], *, posix: bool) -> str:
    """Returns the argument of `attach --order`. posix: for the guest without Python."""
    if posix:
        return posix_order(order)
    return base64.b64encode(order_input(order, posix=False)).decode()


def order_input(order: Mapping[str, Any], *, posix: bool) -> bytes:
    """Returns the stdin of `attach --order -`."""
    text = posix_order(order) if posix else json.dumps(order, separators=(",", ":"))
    return text.encode()
