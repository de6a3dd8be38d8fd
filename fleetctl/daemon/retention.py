"""How long the controller keeps what deleted objects left behind: `FLEETCTL_KEEP_DELETED`.

Called by serve.py. A setting of the machine's owner, not of one command, so it is a variable of the
controller's environment like `FLEETCTL_LOOP`.
"""

from __future__ import annotations

import os

from fleetctl.common.errors import Refused
from fleetctl.engine.shared.settings import Settings
from fleetctl.specs.values.quantities import parse_duration

VARIABLE = "FLEETCTL_KEEP_DELETED"


def engine_settings() -> Settings:
    """Raises Refused for a value that says no span of time."""
    value = os.environ.get(VARIABLE)
    if not value:
        return Settings()
    try:
        return Settings(keep_deleted_s=parse_duration(value))
    except ValueError as error:
        raise Refused(
            f"{VARIABLE} is `{value}`, which is not a duration: {error}",
            hint=f"{VARIABLE}=30d, or 0 to keep nothing",
        ) from error
