"""Writes the generated files of deploy/ from the specs: `python -m fleetctl.operator.crds.write`;
among them the health of our objects for Argo CD.

Argo CD computes the health from the conditions that mirror/statuses.py makes.
tests/unit/operator/test_operator_crds.py compares the files with the specs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.operator.crds.definition import GROUP, definition_of
from fleetctl.operator.crds.roles import (
    build_chart_kinds,
    build_people_roles,
    build_roles,
    build_server_roles,
)
from fleetctl.specs.kinds.registry import KINDS, Kind

ARGOCD_HEAD = """\
-- How Argo CD finds the health of an object of fleetctl, of every kind, by its conditions.
-- deploy/argocd/argocd-cm.yaml has it in place.
"""
HEALTH = (
    ARGOCD_HEAD
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

HEAD = "# Made from specs/ by `make reference`; changes here are lost.\n"


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


def definition_path(kind: Kind) -> str:
    """Returns the path, below deploy/, of the definition of a kind."""
    return f"crds/{GROUP}_{kind.plural}.yaml"


def render_files() -> dict[str, str]:
    """Returns the text of each file by its path below deploy/."""
    made = {definition_path(kind): _render_text([definition_of(kind)]) for kind in KINDS.values()}
    return {
        **made,
        "kustomize/roles.yaml": _render_text(build_roles()),
        "server/roles.yaml": _render_text(build_server_roles()),
        "kustomize/people.yaml": _render_text(build_people_roles()),
        "helm/fleetctl/kinds.yaml": _render_text([build_chart_kinds()]),
        "argocd/argocd-cm.yaml": _render_text([argocd_settings()]),
        "argocd/health.lua": HEALTH,
    }


def _render_text(documents: Sequence[object]) -> str:
    return HEAD + "---\n".join(to_yaml(it) for it in documents)


def main(directory: str) -> None:
    """Writes all files below `directory`, which is deploy/ in the repository."""
    for name, text in render_files().items():
        path = Path(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
