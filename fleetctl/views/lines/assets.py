"""Cells of what runs nothing itself: volumes, functions, endpoints, providers, budgets, secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fleetctl.common.text import HOUR_S, safe, scalar, usd
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.views.objects import NONE, View, mapping


def provider_cell(seen: View, _now_s: float) -> str:
    return safe(str(seen.spec().get("provider") or DEFAULT_PROVIDER))


def slots_cell(seen: View, _now_s: float) -> str:
    """`5/10` sandboxes; `5` where nothing limits them."""
    slots = seen.map("slots")
    limit = slots.get("limit")
    return f"{scalar(slots.get('used', 0))}{'' if limit is None else f'/{scalar(limit)}'}"


def creates_cell(seen: View, _now_s: float) -> str:
    most = mapping(seen.spec().get("limits")).get("createsPerMinute")
    return NONE if most is None else f"{scalar(most)}/min"


def spend_cell(seen: View, _now_s: float) -> str:
    """`$1.20/$2.00` an hour; `+3?` for so many sandboxes of unknown price."""
    spend = seen.map("spend")
    most = mapping(seen.spec().get("breaker")).get("maxSpendPerHour")
    now, unpriced = spend.get("usdPerHour", 0.0), spend.get("unpriced")
    return (
        (usd(now) if isinstance(now, (int, float)) else NONE)
        + (f"+{scalar(unpriced)}?" if unpriced else "")
        + (f"/{usd(most)}" if isinstance(most, (int, float)) else "")
    )


def money_cell(key: str) -> Callable[[View, float], str]:
    """An amount in a Budget's status; `?` where a live run has no limit of time."""

    def cell(seen: View, _now_s: float) -> str:
        if key not in seen.status:
            return NONE
        amount = seen.status[key]
        return usd(amount) if isinstance(amount, (int, float)) else "?"

    return cell


def servers_cell(seen: View, _now_s: float) -> str:
    """`2/3`: so many of its servers answer."""
    servers = endpoint_servers(seen)
    declared = seen.spec().get("servers")
    ready = sum(it.get("state") == "Ready" for it in servers)
    return f"{ready}/{len(declared) if isinstance(declared, list) else len(servers)}"


def answered_cell(seen: View, _now_s: float) -> str:
    """The 95th percentile of its answers' times, of late."""
    spent = seen.map("latency").get("answerMsP95")
    return f"{spent:.0f}ms" if isinstance(spent, (int, float)) else NONE


def cap_cell(seen: View, _now_s: float) -> str:
    most = seen.spec().get("maxCost")
    return usd(most) if isinstance(most, (int, float)) else NONE


def period_cell(seen: View, _now_s: float) -> str:
    return safe(str(seen.spec().get("period") or "month"))


def selector_cell(seen: View, _now_s: float) -> str:
    chosen = mapping(seen.spec().get("selector"))
    return safe(",".join(f"{key}={value}" for key, value in chosen.items())) or "all"


def deletion_cell(seen: View, _now_s: float) -> str:
    return safe(str(seen.spec().get("deletionPolicy") or "Retain"))


def gpu_cell(seen: View, _now_s: float) -> str:
    """`H100:1 A100:1`: what is wanted first stands first."""
    gpu = mapping(seen.spec().get("resources")).get("gpu")
    return safe(" ".join(_names(gpu if isinstance(gpu, list) else [gpu] if gpu else []))) or NONE


def containers_cell(seen: View, _now_s: float) -> str:
    """`0-8`; `0-` where only the jobs' parallelism limits them."""
    spec = seen.spec()
    most = spec.get("maxContainers", 1 if "port" in spec else None)
    return f"{scalar(spec.get('minContainers', 0))}-{'' if most is None else scalar(most)}"


def warm_cell(seen: View, _now_s: float) -> str:
    """What its warm containers cost."""
    return per_hour(seen) or NONE


def per_hour(seen: View) -> str:
    """`$63.20`; `unknown`; empty where nothing that costs stays warm."""
    warm = mapping(seen.status.get("warm"))
    rate = warm.get("usdPerSecond")
    known = isinstance(rate, (int, float))
    return "" if not warm else usd(rate * HOUR_S) if known else "unknown"  # type: ignore[operator]


def endpoint_servers(seen: View) -> Sequence[Mapping[str, object]]:
    """As its gateway found them last."""
    servers = seen.status.get("servers")
    return [mapping(it) for it in servers] if isinstance(servers, list) else []


def secret_cell(seen: View, _now_s: float) -> str:
    """Where a secret's values come from; never the values, which the store does not have."""
    spec = seen.spec()
    found = [f"env:{name}" for name in _names(spec.get("fromEnv"))]
    found += [f"file:{name}" for name in _names(spec.get("fromFile"))]
    if spec.get("fromProvider"):
        found.append("provider")
    return safe(",".join(found) or NONE)


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, (list, dict)) else []
