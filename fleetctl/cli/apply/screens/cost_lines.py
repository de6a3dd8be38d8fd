"""The lines on an object's costs after an apply, from the plan in the controller's reply (the form
of `plan -o json`). Pure; called by outcomes.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.views.objects import as_mapping

Plan = Mapping[str, object]


def cost_lines(planned: Plan) -> Iterator[str]:
    """Yields where a new object will run and its cost; no line for free work on this machine."""
    warm = as_mapping(planned.get("standing"))
    work = as_mapping(planned.get("work"))
    if warm:
        yield f"cost       {_format_warm(warm)}{_format_caps(warm)}"
    places = _as_list(work.get("placement"))
    if planned.get("action") == "create" and not all(map(_is_default, places)):
        yield f"placement  {_format_placement(places, str(work.get('gpu') or ''))}"
        yield f"estimate   {_format_estimate(work)}{_format_caps(work)}"


def _is_default(place: Plan) -> bool:
    """Returns true for the default, which needs no line."""
    return place.get("provider") == DEFAULT_PROVIDER and place.get("perHour") == 0.0


def _format_placement(places: Sequence[Plan], gpu: str) -> str:
    """`modal L4:1 (36 slots), then local (4); not daytona: no L4 there`. Stages share providers."""
    by_name = {str(place.get("provider")): place for place in reversed(places)}
    shared = [by_name[name] for name in dict.fromkeys(str(it.get("provider")) for it in places)]
    fitting = [_format_slots(it, gpu) for it in shared if it.get("fits")]
    lost = [f"not {it.get('provider')}: {it.get('why')}" for it in shared if not it.get("fits")]
    return "; ".join((", then ".join(fitting) or "nowhere", *lost))


def _format_slots(place: Plan, gpu: str) -> str:
    name, slots = (
        f"{place.get('provider')}{' ' if gpu else ''}{gpu}",
        _as_number(place.get("slots")),
    )
    many = "slot" if slots == 1 else "slots"
    if slots:
        return f"{name} ({slots:,.0f} {many})"
    return name


def _format_estimate(work: Plan) -> str:
    """`$6.10  (range $4.80-$8.90; from 212 past tasks)`."""
    from fleetctl.apply.cost.cost_text import format_cost, format_range
    from fleetctl.apply.cost.estimate import Cost

    it = as_mapping(as_mapping(work.get("cost")).get("thisApply"))
    cost = Cost(
        _as_number(it.get("low")) or 0.0, _as_number(it.get("expected")), _as_number(it.get("high"))
    )
    message = "; ".join(text for text in (format_range(cost), str(work.get("basis") or "")) if text)
    if not message or cost.high == 0.0:
        return format_cost(cost)
    return f"{format_cost(cost)}  ({message})"


def _format_warm(warm: Plan) -> str:
    from fleetctl.apply.cost.cost_text import describe_warm

    most = _as_number(warm.get("perHour"))
    least = _as_number(warm.get("leastPerHour"))
    return describe_warm(int(_as_number(warm.get("containers")) or 0), least, most)


def _format_caps(costing: Plan) -> str:
    """Returns the object's own cap, such as ` cap $25.00`, else the rest of each Budget."""
    from fleetctl.apply.cost.cost_text import format_cap

    budgets = _as_list(costing.get("budgets"))
    known = ((it, _as_number(it.get("maxCost")), _as_number(it.get("used"))) for it in budgets)
    return "".join(
        f"   {format_cap(str(it.get('budget')), most or 0.0, used or 0.0)}"
        for it, most, used in known
    )


def _as_list(value: object) -> list[Plan]:
    if isinstance(value, list):
        return [as_mapping(it) for it in value]
    return []


def _as_number(value: object) -> float | None:
    if isinstance(value, (int, float)):
        return float(value)
    return None
