"""Makes backups on a schedule: decides by controllers/kinds, lets another process make the copies,
and builds the status of the settings for backups and retention.

A moment is done when the copy is whole and recorded; a controller that ends in between makes
another copy, which is harmless.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from fleetctl.common.errors import FleetctlError
from fleetctl.controllers.kinds.backup_decision import (
    BackupMemory,
    block_of,
    find_due_backup,
    memory_of,
    record_failure,
    record_success,
    retry_s,
)
from fleetctl.controllers.planning.plan import Phase
from fleetctl.controllers.status_keys import Status
from fleetctl.engine.execute.retention import SettingsUnreadable, settings_in
from fleetctl.engine.execute.secrets import ResolvedSecrets
from fleetctl.engine.shared.part import EnginePart, Helper, PartWiring
from fleetctl.specs.kinds.settings import BackupSettings, SettingsSpec
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from fleetctl.controllers.model import Resource
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import Track


KIND = "Settings"
KEY = "backup"
RETAINED = "retained"

log = logging.getLogger("fleetctl.engine")

# A clock that is moved, settings that are written and a machine that slept are noticed within this.
BEAT_S = 30.0
ERROR_CHARS_MAX = 500


def read_latest(state: EngineState, status: Mapping[str, object]) -> Mapping[str, object]:
    """Returns the block of backups: as it is known since the status was written, or as the status
    has it.
    """
    found = state.settings_status.get(KEY) or status.get(KEY)
    if isinstance(found, dict):
        return found
    return {}


def settings_status(
    state: EngineState,
    track: Track,
    now_s: float,
) -> Status:
    status: Status = {}
    retained = state.settings_status.get(RETAINED) or track.status.get(RETAINED)
    if isinstance(retained, list):
        status["retained"] = retained
    spec = track.spec
    if not isinstance(spec, SettingsSpec) or spec.backup is None:
        state.settings_status.pop(KEY, None)
        return status
    kept = read_latest(state, track.status)
    written_s = track.resource.created_at_s
    memory = memory_of(kept, spec.backup, written_s=written_s, now_s=now_s)
    if not kept and track.resource.generation > 1:
        # The field is new in settings that are older: it counts from now.
        memory = memory_of({"times": ""}, spec.backup, written_s=written_s, now_s=now_s)
    status["backup"] = state.settings_status[KEY] = block_of(spec.backup, memory)
    if memory.error:
        text = f"the backup failed: {memory.error}"
        status["phase"], status["reason"] = Phase.PENDING.value, "BackupFailed"
        status["message"], status["waitingOn"] = text, [text]
    return status


@dataclass(frozen=True, slots=True)
class BackupResult:
    """url: of the backup, an absolute path or a URL. dropped: how many older ones went. remark: why
    not all that should have gone did, or empty.
    """

    url: str
    bytes: int
    dropped: int = 0
    remark: str = ""


# Makes one: where to, how many stay, variables that it gets beside ours. Raises FleetctlError.
Make = Callable[[str, int, Mapping[str, str]], Awaitable[BackupResult]]
Secrets = Callable[[tuple[str, ...], str], ResolvedSecrets]


class Backups(EnginePart):
    """make: None = this engine makes no backups. secrets: resolves values."""

    kind = KIND

    def __init__(
        self,
        state: EngineState,
        *,
        make: Make | None,
        secrets: Secrets,
    ) -> None:
        self._state, self._make, self._secrets = state, make, secrets

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(wiring.state, make=wiring.services.backup, secrets=wiring.secrets)

    def list_helpers(self) -> tuple[Helper, ...]:
        return (self.tend,)

    def add_status(
        self,
        track: Track,
        status: Status,
        now_s: float,
    ) -> Status:
        if track.resource.deleted_at_s is not None:
            return status
        return status | settings_status(self._state, track, now_s)

    def is_idle(self) -> bool:
        """Returns false if a controller must be running for the next backup."""
        found = self._settings() if self._make is not None else None
        return found is None or found[1].suspend

    async def tend(self) -> None:
        while True:
            look_s = await self.look()
            wait_s = BEAT_S if look_s is None else look_s - self._state.clock.now_s()
            await asyncio.sleep(min(max(wait_s, 0.0), BEAT_S))

    async def look(self) -> float | None:
        """Makes the due backup. Returns when to look again; None: no backup is planned."""
        found = self._settings()
        if found is None or self._make is None:
            return None
        row, spec = found
        kept, now_s = (
            read_latest(self._state, json.loads(row.status or "{}")),
            self._state.clock.now_s(),
        )
        if not kept:
            return None  # its first pass is to come, which notes from when on moments count
        memory = memory_of(kept, spec, written_s=row.created_at_s, now_s=now_s)
        next_one = find_due_backup(spec, memory, now_s)
        if next_one.for_s is None:
            return next_one.look_s
        try:
            made = await self._make(spec.to, spec.keep, self._values(spec))
        except FleetctlError as error:
            text = f"{error}; {error.hint}" if error.hint else str(error)
            memory = record_failure(memory, self._state.clock.now_s(), text[:ERROR_CHARS_MAX])
            log.warning("backup failed", extra={"error": str(error)})
            self._report(
                row,
                spec,
                memory,
                "BackupFailed",
                f"the backup failed: {memory.error}",
            )
            return retry_s(memory)
        now_s = self._state.clock.now_s()
        memory = record_success(
            memory,
            next_one.for_s,
            now_s,
            made.url,
            made.bytes,
        )
        went = f", {made.dropped} older ones deleted" if made.dropped else ""
        but = f"; {made.remark[:ERROR_CHARS_MAX]}" if made.remark else ""
        self._report(
            row,
            spec,
            memory,
            "BackedUp",
            f"{made.url} is written{went}{but}",
        )
        return spec.times.next_s(memory.decided_s)

    def _settings(self) -> tuple[Resource, BackupSettings] | None:
        try:
            found = settings_in(self._state)
        except SettingsUnreadable as error:
            log.warning("backups wait", extra={"error": str(error)})
            return None
        if found is None or found[1].backup is None:
            return None
        return found[0], found[1].backup

    def _values(self, spec: BackupSettings) -> Mapping[str, str]:
        if spec.secret is None:
            return {}
        return self._secrets((spec.secret,), DEFAULT_NAMESPACE).values

    def _report(
        self,
        row: Resource,
        spec: BackupSettings,
        memory: BackupMemory,
        reason: str,
        text: str,
    ) -> None:
        """Reports the outcome; the pass over the settings makes it durable."""
        state = self._state
        state.settings_status[KEY] = block_of(spec, memory)
        state.say(row.uid, reason, text, kind="Warning" if memory.error else "Normal")
        state.poke(row.uid)
