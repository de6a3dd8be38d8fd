"""`python -m tests.live modal [words for pytest]`."""

from __future__ import annotations

import sys

from tests.live import modal


def main(words: list[str]) -> int:
    if words[:1] != ["modal"]:
        print("error: say which service: `python -m tests.live modal`", file=sys.stderr)
        return 2
    return modal.main(words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
