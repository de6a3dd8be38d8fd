"""Print the measures of the product's style: `python -m tests.style [--docs] [NAME]`."""

from __future__ import annotations

import argparse

from tests.style.measures import measure_code, measure_docs
from tests.style.test_style import CODE, DOCS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.style", description=__doc__)
    parser.add_argument("name", nargs="?", help="show where this measure finds something")
    parser.add_argument("--docs", action="store_true", help="of README.md and docs/")
    arguments = parser.parse_args()
    measured, ceilings = (measure_docs(), DOCS) if arguments.docs else (measure_code(), CODE)
    for name, value in measured.values.items():
        print(f"{name:10} {value:7.1f}  of at most {ceilings[name]:g}")
    if arguments.name:
        print(*measured.where[arguments.name], sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
