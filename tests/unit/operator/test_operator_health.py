"""The health of our kinds in tools that do not know them: by kstatus, as Flux uses it, and in Argo
CD by the script in deploy/.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.operator.mirror.statuses import Unaccepted, status_for
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.views.objects import View
from tests.unit.operator.test_operator_statuses import seen

DEPLOY = Path(__file__).parents[3] / "deploy/argocd"
INVALID = Unaccepted("Invalid", "spec.parallelism is `-1`")
STUCK = {"lack": "Secret", "reason": "SecretMissing", "message": "there is no such secret"}
GENERATION = 7


def stands(phase: str, reason: str = "", kind: str = "BatchJob", **more: Any) -> View:
    return seen(kind, phase=phase, reason=reason or phase, observedGeneration=3, **more)


# (what is stored, why the newest state is refused, kstatus, Argo CD's health)
CASES: dict[str, tuple[View | None, Unaccepted | None, str, str]] = {
    "refused at once": (None, INVALID, "Failed", "Degraded"),
    "a refused edit of what runs": (stands("Running"), INVALID, "Failed", "Degraded"),
    "a refused edit of what succeeded": (stands("Succeeded"), INVALID, "Failed", "Degraded"),
    "pending": (stands("Pending", "Queued"), None, "InProgress", "Progressing"),
    "running": (stands("Running", "InProgress"), None, "InProgress", "Progressing"),
    "succeeded": (stands("Succeeded", "Completed"), None, "Current", "Healthy"),
    "skipped": (stands("Skipped", "DependencyFailed"), None, "Current", "Healthy"),
    "failed": (stands("Failed", "FailedIndexes"), None, "Failed", "Degraded"),
    "suspended by its spec": (stands("Suspended", "Suspended"), None, "Current", "Suspended"),
    "out of money": (stands("Suspended", "BudgetExhausted"), None, "Failed", "Degraded"),
    "what nothing on its way helps": (
        stands("Pending", "SecretMissing", stuck=STUCK),
        None,
        "Failed",
        "Degraded",
    ),
    "a newer spec that nobody looked at": (
        seen(generation=4, phase="Succeeded", observedGeneration=3),
        None,
        "InProgress",
        "Progressing",
    ),
    "a volume that is made": (stands("Pending", kind="Volume"), None, "InProgress", "Progressing"),
    "a volume": (stands("Ready", kind="Volume"), None, "Current", "Healthy"),
    "a volume that failed": (stands("Failed", kind="Volume"), None, "Failed", "Degraded"),
}


def shown(case: str) -> dict[str, Any]:
    view, refusal, _, _ = CASES[case]
    status = status_for(view, {}, GENERATION, refusal, 5.0)
    return {"metadata": {"generation": GENERATION}, "status": status}


@pytest.mark.parametrize("case", list(CASES))
def test_flux_knows_how_an_object_stands(case: str) -> None:
    assert kstatus(shown(case)) == CASES[case][2]


@pytest.mark.parametrize("case", list(CASES))
def test_argo_cd_knows_how_an_object_stands(case: str) -> None:
    found = health(shown(case))
    assert found["status"] == CASES[case][3]
    assert isinstance(found["message"], str)


def test_what_nobody_has_looked_at_is_on_its_way() -> None:
    fresh = {"metadata": {"generation": 1}}
    assert health(fresh)["status"] == "Progressing"
    old = shown("succeeded") | {"metadata": {"generation": GENERATION + 1}}
    assert (health(old)["status"], kstatus(old)) == ("Progressing", "InProgress")


def test_a_generation_is_always_told() -> None:
    assert all(shown(it)["status"]["observedGeneration"] >= 0 for it in CASES)
    assert shown("refused at once")["status"]["observedGeneration"] == GENERATION


def test_the_settings_of_argo_cd_hold_the_program_for_each_kind() -> None:
    settings = yaml.safe_load((DEPLOY / "argocd-cm.yaml").read_text())
    program = (DEPLOY / "health.lua").read_text()
    assert settings["data"] == {
        f"resource.customizations.health.fleetctl.dev_{kind}": program for kind in KINDS
    }


def kstatus(stored: dict[str, Any]) -> str:
    """The rules of sigs.k8s.io/cli-utils/pkg/kstatus for objects that it does not know."""
    metadata, status = stored["metadata"], stored.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    observed = status.get("observedGeneration")
    if observed is not None and observed != metadata["generation"]:
        return "InProgress"
    conditions = {it["type"]: it["status"] for it in status.get("conditions", ())}
    if conditions.get("Reconciling") == "True":
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    return "Current" if conditions.get("Ready", "True") == "True" else "InProgress"


def health(stored: dict[str, Any]) -> dict[str, Any]:
    """Returns the script's result for an object, run as Argo CD does: in a sandbox with `obj`, by
    Lua 5.1."""
    from lupa import lua51

    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = lua.table_from(stored, recursive=True)
    found = lua.execute((DEPLOY / "health.lua").read_text())
    return {str(key): found[key] for key in found}
