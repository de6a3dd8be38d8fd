"""`python -m tests.live SERVICE [words for pytest]`."""

from __future__ import annotations

import sys

from tests.live import daytona, kubernetes, modal

SERVICES = {"modal": modal.main, "daytona": daytona.main, "kubernetes": kubernetes.main}


def main(words: list[str]) -> int:
    if not words or words[0] not in SERVICES:
        choices = " or ".join(f"`python -m tests.live {name}`" for name in SERVICES)
        print(f"error: say which service: {choices}", file=sys.stderr)
        return 2
    return SERVICES[words[0]](words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
