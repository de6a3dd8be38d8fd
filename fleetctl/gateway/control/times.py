"""Waiting and answering times as the controller hears them."""

from collections.abc import Sequence

from fleetctl.gateway.endpoints import Times


def percentiles(times: Times | None) -> dict[str, float | None]:
    """Milliseconds by `waiting_ms_p50` and so on; None without samples."""
    found: dict[str, float | None] = {}
    for name in ("waiting_ms", "answer_ms"):
        samples = sorted(getattr(times, name)) if times is not None else []
        found[f"{name}_p50"], found[f"{name}_p95"] = _rank(samples, 0.5), _rank(samples, 0.95)
    return found


def _rank(samples: Sequence[float], share: float) -> float | None:
    return samples[min(len(samples) - 1, int(len(samples) * share))] if samples else None
