"""What a test may set about the emulated service: keys, entities, what its schema lacks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

# wandb takes no key of fewer than 40 characters.
API_KEY = "local-emulator" + "0" * 32
FOREIGN_KEY = "local-stranger" + "0" * 32
ENTITY = "acme"
FOREIGN_ENTITY = "others"


@dataclass(slots=True)
class Settings:
    """Each field may be set at any time, in-process or by admin's `settings`."""

    # Of each key the entities that it may see and change; the first is its default.
    keys: dict[str, tuple[str, ...]] = field(
        default_factory=lambda: {API_KEY: (ENTITY,), FOREIGN_KEY: (FOREIGN_ENTITY,)}
    )
    latency_s: float = 0.0  # added to every request
    # A server of before launch: it refuses these inputs of upsertSweep as its schema does.
    unknown_inputs: tuple[str, ...] = ()
    # A run that was handed to an agent whose answer got lost is handed to it again, while neither
    # its heartbeats nor the run's program have named it. What the service does is not known.
    hands_again: bool = False
    # A run that nothing was heard of for so long has crashed; some minutes at the service.
    crashes_after_s: float = math.inf
    # A cancelled sweep's agents get `exit` at once, which kills; else `stop` for each run first.
    cancels_by_exit: bool = False
    exits_the_busy: bool = False  # agents that report a run are sent away
    warnings: tuple[str, ...] = ()  # configValidationWarnings of the next sweeps
    features: tuple[str, ...] = ()  # of the server, by name, that are on

    def change(self, values: dict[str, Any]) -> None:
        """Set what is named; unknown names are errors."""
        known = {one.name for one in fields(self)}
        for name, value in values.items():
            if name not in known:
                raise ValueError(f"there is no setting `{name}`")
            setattr(self, name, tuple(value) if isinstance(value, list) else value)
