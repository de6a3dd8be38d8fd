"""deploy/crds/, made anew: `python -m fleetctl.operator.crds.write DIRECTORY`.

tests/unit/operator/test_operator_crds.py holds the files to the specs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.operator.crds.definition import GROUP, definition_of
from fleetctl.specs.kinds.registry import KINDS, Kind

HEAD = "# Made from specs/ by `make reference`; changes here are lost.\n"


def file_of(kind: Kind) -> str:
    return f"{GROUP}_{kind.plural}.yaml"


def text_of(kind: Kind) -> str:
    return HEAD + to_yaml(definition_of(kind))


def main(directory: str) -> None:
    there = Path(directory)
    there.mkdir(parents=True, exist_ok=True)
    for kind in KINDS.values():
        (there / file_of(kind)).write_text(text_of(kind), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
