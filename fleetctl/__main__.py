"""`python -m fleetctl`: the console script, for a Python whose scripts are not on PATH."""

from __future__ import annotations

import sys

from fleetctl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
