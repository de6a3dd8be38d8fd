"""What an apply says of an object's costs, from the plan that the controller answers with (the form
of `plan -o json`). Pure; called by outcomes.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.views.objects import mapping

Plan = Mapping[str, object]


def cost_lines(planned: Plan) -> Iterator[str]:
    """Where a new object will run and for how much; nothing of what is here and free."""
    warm, work = mapping(planned.get("standing")), mapping(planned.get("work"))
    if warm:
        yield f"cost       {_stands(warm)}{_caps(warm)}"
    places = _list(work.get("placement"))
    if planned.get("action") == "create" and not all(map(_plain, places)):
        yield f"placement  {_placement(places, str(work.get('gpu') or ''))}"
        yield f"estimate   {_estimate(work)}{_caps(work)}"


def _plain(place: Plan) -> bool:
    """What one expects where nothing else is said."""
    return place.get("provider") == DEFAULT_PROVIDER and place.get("perHour") == 0.0


def _placement(places: Sequence[Plan], gpu: str) -> str:
    """`modal L4:1 (36 slots), then local (4); not daytona: no L4 there`. Stages share places."""
    by_name = {str(place.get("provider")): place for place in reversed(places)}
    shared = [by_name[name] for name in dict.fromkeys(str(it.get("provider")) for it in places)]
    fitting = [_slots(it, gpu) for it in shared if it.get("fits")]
    lost = [f"not {it.get('provider')}: {it.get('why')}" for it in shared if not it.get("fits")]
    return "; ".join((", then ".join(fitting) or "nowhere", *lost))


def _slots(place: Plan, gpu: str) -> str:
    name, slots = f"{place.get('provider')}{' ' if gpu else ''}{gpu}", _number(place.get("slots"))
    many = "slot" if slots == 1 else "slots"
    return f"{name} ({slots:,.0f} {many})" if slots else name


def _estimate(work: Plan) -> str:
    """`$6.10  (range $4.80-$8.90; from 212 past tasks)`."""
    from fleetctl.apply.cost.estimate import Cost
    from fleetctl.apply.cost.words import figure, span

    it = mapping(mapping(work.get("cost")).get("thisApply"))
    cost = Cost(_number(it.get("low")) or 0.0, _number(it.get("expected")), _number(it.get("high")))
    message = "; ".join(text for text in (span(cost), str(work.get("basis") or "")) if text)
    return figure(cost) if not message or cost.high == 0.0 else f"{figure(cost)}  ({message})"


def _stands(warm: Plan) -> str:
    from fleetctl.apply.cost.words import stands

    most, least = _number(warm.get("perHour")), _number(warm.get("leastPerHour"))
    return stands(int(_number(warm.get("containers")) or 0), least, most)


def _caps(costing: Plan) -> str:
    """`   cap $25.00` of the object's own, else what is left of each Budget."""
    from fleetctl.apply.cost.words import short

    budgets = _list(costing.get("budgets"))
    known = ((it, _number(it.get("maxCost")), _number(it.get("used"))) for it in budgets)
    return "".join(
        f"   {short(str(it.get('budget')), most or 0.0, used or 0.0)}" for it, most, used in known
    )


def _list(value: object) -> list[Plan]:
    return [mapping(it) for it in value] if isinstance(value, list) else []


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
