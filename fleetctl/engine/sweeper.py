"""The sweep: sandboxes that carry our store's tag and have no record are stopped after a grace time
(T7, P3).

A sandbox without a record is rare: a create that landed after we gave up, or a store restored from
a backup.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.errors import Refused, Unavailable
from fleetctl.providers.base import Owned, RunRef

if TYPE_CHECKING:
    from fleetctl.engine.loop import Engine

log = logging.getLogger("fleetctl.engine")


async def sweep_forever(engine: Engine) -> None:
    """Each round looks at every provider; a provider that fails is looked at in the next round."""
    while True:
        await asyncio.sleep(engine.settings.sweep_s)
        for name in engine.providers:
            try:
                await engine.guarded(sweep(engine, name), what="sweep", key=name)
            except (Refused, Unavailable) as error:
                log.warning("sweep refused", extra={"provider": name, "error": str(error)})


async def sweep(engine: Engine, name: str) -> int:
    """How many sandboxes without a record were asked to stop."""
    provider = engine.providers[name]
    contract, gate = provider.contract, engine.effects.gates[name]
    owned = await gate.ask(provider.owned)
    grace_s = contract.visibility_bound_s + contract.call_deadline_s + engine.settings.sweep_grace_s
    old_at_s = engine.clock.now_s() - grace_s
    strays = [box for box in owned if box.created_at_s < old_at_s and not _known(engine, box)]
    for box in strays[: engine.settings.sweep_stops_max]:
        log.warning("sandbox without a record", extra={"sandbox": box.sandbox, "provider": name})
        ref = RunRef(box.sandbox, box.sandbox, box.handle, 0, "")
        await gate.ask(partial(provider.stop, ref, grace_s=0.0))
    return len(strays)


def _known(engine: Engine, box: Owned) -> bool:
    """Recorded, or of a resource whose rows are not read yet."""
    for track in engine.tracks.values():
        if track.history is None:
            if not track.dormant and track.resource.kind not in ("Volume", "Secret"):
                return True
        elif box.sandbox in track.history.sandboxes:
            return True
    return False
