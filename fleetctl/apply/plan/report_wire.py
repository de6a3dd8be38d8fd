"""Carries a plan from a server to the command line that shows it: the report as JSON, and back.

Made by the server beside the document of `plan -o json`, whose form is for scripts and stays; this
one follows the report's own. A side that is newer may have further fields, which are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fleetctl.apply.plan.plan_report import ObjectPlan, PlanReport
from fleetctl.specs.values.changes import UNSET, FieldChange

_ABSENT = {"absent": True}  # JSON has no value for a field that one side does not have


def dump_report(found: PlanReport) -> dict[str, Any]:
    """Returns the report as JSON has it."""
    marked = replace(found, objects=tuple(map(_mark_absent, found.objects)))
    made: dict[str, Any] = TypeAdapter(PlanReport).dump_python(marked, mode="json")
    return made


def load_report(data: object) -> PlanReport | None:
    """Returns the report; None for one of another version, or none at all."""
    if not isinstance(data, Mapping):
        return None
    try:
        found = TypeAdapter(PlanReport).validate_python(data)
    except ValidationError:
        return None
    return replace(found, objects=tuple(map(_restore_absent, found.objects)))


def _mark_absent(plan: ObjectPlan) -> ObjectPlan:
    def mark(value: object) -> object:
        return _ABSENT if value is UNSET else value

    return _with_values(plan, mark)


def _restore_absent(plan: ObjectPlan) -> ObjectPlan:
    def restore(value: object) -> object:
        return UNSET if value == _ABSENT else value

    return _with_values(plan, restore)


def _with_values(plan: ObjectPlan, change: Any) -> ObjectPlan:
    fields = tuple(
        FieldChange(it.path, change(it.before), change(it.after), it.difference)
        for it in plan.fields
    )
    return replace(plan, fields=fields)
