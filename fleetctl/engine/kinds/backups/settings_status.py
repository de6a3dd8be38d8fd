"""Builds the status of the settings for backups and for retention. Called by passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleetctl.controllers.kinds.backups.backup_decision import block_of, memory_of
from fleetctl.controllers.planning.plan import Phase
from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.specs.kinds.settings import SettingsSpec

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import Track

KIND = "Settings"
KEY = "backup"
RETAINED = "retained"


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
