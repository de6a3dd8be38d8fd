"""What a test may set about the emulated platform: how long states last, limits, lags, keys."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

API_KEY = "dtn_emulator"
API_KEY_WITHOUT_ACCESS = "dtn_no_access"
GIGANTIC = 10**6

DURATIONS_S = {
    "pending_build": 0.0,
    "building_snapshot": 0.0,  # at least; it lasts as long as the build does
    "creating": 0.0,
    "pulling_snapshot": 0.0,
    "starting": 0.0,
    "stopping": 0.0,
    "archiving": 0.1,
    "restoring": 0.1,
    "resizing": 0.05,
    "snapshotting": 0.0,
    "forking": 0.0,
    "pausing": 0.0,
    "resuming": 0.0,
    "destroying": 0.0,
    "backup": 0.1,
    "volume.pending_create": 0.02,
    "volume.creating": 0.05,
    "volume.pending_delete": 0.02,
    "volume.deleting": 0.05,
    "snapshot.pending": 0.0,
    "snapshot.pulling": 0.05,
    "snapshot.removing": 0.02,
}


@dataclass(slots=True)
class Quota:
    """Of the whole organization, per region. The figures are those of the third tier."""

    cpu: int = 250
    memory: int = 500
    disk: int = 2000
    gpu: int = 8
    cpu_per_sandbox: int = 4
    memory_per_sandbox: int = 8
    disk_per_sandbox: int = 10
    cpu_per_gpu: int = 16
    memory_per_gpu: int = 192
    disk_per_gpu: int = 512
    volumes: int = 100
    snapshots: int = 100
    secrets: int = 100


@dataclass(slots=True)
class Settings:
    """Each field may be set at any time, in-process or by PATCH /admin/settings."""

    durations_s: dict[str, float] = field(default_factory=lambda: dict(DURATIONS_S))
    quota: Quota = field(default_factory=Quota)
    list_lag_s: float = 0.0  # the index is right again this long after the last change
    create_answers_after_s: float = 0.0  # a create waits so long for `started` before it answers
    latency_s: float = 0.0  # added to every request
    gpus_per_type: int = GIGANTIC  # runners; who finds none waits in a queue
    default_queue_minutes: int = 0  # for who names no time of its own; 0 waits without end
    gpu_types: tuple[str, ...] = ("H100", "H200", "RTX-PRO-6000", "RTX-4090", "RTX-5090")
    # Throttlers: requests a minute, None for no limit (a benchmark would meet the real ones).
    rate_per_minute: dict[str, int | None] = field(
        default_factory=lambda: {
            "authenticated": None,
            "sandbox-create": None,
            "sandbox-lifecycle": None,
        }
    )
    lifespan_s: float = float(GIGANTIC) * 100  # no sandbox lives longer, whatever it asks for
    events: bool = True  # False: the socket accepts no one, and the SDK falls back to polling
    volumes_are_directories: bool = False  # True: with rename and append, which Daytona has not
    restricted_egress: bool = False  # True: as the lower tiers, network settings are refused
    gone_images: tuple[str, ...] = ("*gone*", "*does-not-exist*")  # names that no registry has
    keys: dict[str, bool] = field(
        default_factory=lambda: {API_KEY: True, API_KEY_WITHOUT_ACCESS: False}
    )

    def lasting_s(self, state: str) -> float:
        return self.durations_s.get(state, 0.0)

    def change(self, values: dict[str, Any]) -> None:
        """Set what is named; mappings and the quota are merged, unknown names are errors."""
        known = {one.name for one in fields(self)}
        for name, value in values.items():
            if name not in known:
                raise KeyError(name)
            current = getattr(self, name)
            if isinstance(current, dict):
                current.update(value)
            elif isinstance(current, Quota):
                for key, limit in value.items():
                    setattr(current, key, limit)
            else:
                setattr(self, name, tuple(value) if isinstance(current, tuple) else value)
