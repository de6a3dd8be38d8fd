"""Waiting and answering times for the controller."""

from collections.abc import Sequence

from fleetctl.gateway.endpoints import CallTimes


def compute_percentiles(times: CallTimes | None) -> dict[str, float | None]:
    """Returns milliseconds by `waiting_ms_p50` and so on; None without samples."""
    found: dict[str, float | None] = {}
    for name in ("waiting_ms", "answer_ms"):
        samples = sorted(getattr(times, name)) if times is not None else []
        found[f"{name}_p50"], found[f"{name}_p95"] = (
            _pick_percentile(samples, 0.5),
            _pick_percentile(samples, 0.95),
        )
    return found


def _pick_percentile(samples: Sequence[float], share: float) -> float | None:
    if samples:
        return samples[min(len(samples) - 1, int(len(samples) * share))]
    return None
