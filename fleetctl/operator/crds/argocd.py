"""The health of our objects for Argo CD: a program in Lua, and the settings that hold it. Pure;
written by write.py. The conditions that it reads are made in mirror/health.py.
"""

from __future__ import annotations

from typing import Any

from fleetctl.operator.crds.definition import GROUP
from fleetctl.specs.kinds.registry import KINDS

HEAD = """\
-- How Argo CD finds the health of an object of fleetctl, of every kind, by its conditions.
-- deploy/argocd/argocd-cm.yaml has it in place.
"""
HEALTH = (
    HEAD
    + """\
local health = { status = "Progressing", message = "no operator has looked at it yet" }
local status = obj.status

if status == nil or status.conditions == nil then
  return health
end
if status.observedGeneration ~= obj.metadata.generation then
  health.message = "its newest state is not looked at yet"
  return health
end

local conditions = {}
for _, condition in ipairs(status.conditions) do
  conditions[condition.type] = condition
end

local stalled, moving, ready = conditions.Stalled, conditions.Reconciling, conditions.Ready
if stalled ~= nil and stalled.status == "True" then
  return { status = "Degraded", message = stalled.message }
end
if moving ~= nil and moving.status == "True" then
  return { status = "Progressing", message = moving.message }
end
if ready ~= nil and ready.status == "True" then
  if ready.reason == "Suspended" then
    return { status = "Suspended", message = ready.message }
  end
  return { status = "Healthy", message = ready.message }
end
return health
"""
)


def argocd_settings() -> dict[str, Any]:
    """Returns the settings to merge into the ConfigMap of Argo CD."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "argocd-cm",
            "namespace": "argocd",
            "labels": {"app.kubernetes.io/part-of": "argocd"},
        },
        "data": {f"resource.customizations.health.{GROUP}_{kind}": HEALTH for kind in KINDS},
    }
