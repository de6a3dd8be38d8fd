"""What deploy/ has from the specs, made anew: `python -m fleetctl.operator.crds.write deploy`.

tests/unit/operator/test_operator_crds.py holds the files to the specs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.operator.crds.definition import GROUP, definition_of
from fleetctl.operator.crds.roles import kinds_of_a_chart, people, roles
from fleetctl.specs.kinds.registry import KINDS, Kind

HEAD = "# Made from specs/ by `make reference`; changes here are lost.\n"


def file_of(kind: Kind) -> str:
    return f"crds/{GROUP}_{kind.plural}.yaml"


def files() -> dict[str, str]:
    """Path below deploy/ -> text."""
    made = {file_of(kind): _text([definition_of(kind)]) for kind in KINDS.values()}
    return {
        **made,
        "kustomize/roles.yaml": _text(roles()),
        "kustomize/people.yaml": _text(people()),
        "helm/fleetctl/kinds.yaml": _text([kinds_of_a_chart()]),
    }


def _text(documents: Sequence[object]) -> str:
    return HEAD + "---\n".join(to_yaml(it) for it in documents)


def main(directory: str) -> None:
    for name, text in files().items():
        path = Path(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
