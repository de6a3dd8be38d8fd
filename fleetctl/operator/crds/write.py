"""Writes the generated files of deploy/ from the specs: `python -m fleetctl.operator.crds.write
deploy`.

tests/unit/operator/test_operator_crds.py compares the files with the specs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.operator.crds.argocd import HEALTH, argocd_settings
from fleetctl.operator.crds.definition import GROUP, definition_of
from fleetctl.operator.crds.roles import build_chart_kinds, build_people_roles, build_roles
from fleetctl.specs.kinds.registry import KINDS, Kind

HEAD = "# Made from specs/ by `make reference`; changes here are lost.\n"


def definition_path(kind: Kind) -> str:
    """Returns the path, below deploy/, of the definition of a kind."""
    return f"crds/{GROUP}_{kind.plural}.yaml"


def render_files() -> dict[str, str]:
    """Returns the text of each file by its path below deploy/."""
    made = {definition_path(kind): _render_text([definition_of(kind)]) for kind in KINDS.values()}
    return {
        **made,
        "kustomize/roles.yaml": _render_text(build_roles()),
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
