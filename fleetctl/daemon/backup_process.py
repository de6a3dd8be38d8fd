"""Makes one backup with `fleetctl backup` as a process of its own: the libraries for other services
load and fail there, credentials are in its environment alone, and no tick waits.

Called by the engine when a schedule is due.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from fleetctl.common.errors import Unavailable
from fleetctl.common.text import escape_lines
from fleetctl.engine.kinds.backups.backups import BackupResult
from fleetctl.providers.programs import run_program

# A state of gigabytes over a slow line; a longer one is ended, and reported as failed.
DEADLINE_S = 3_600.0


async def backed_up(
    home: Path,
    to: str,
    keep: int,
    variables: Mapping[str, str],
) -> BackupResult:
    """Makes a backup. variables: added to the environment of ours. Raises Unavailable; then there
    is no new valid backup.
    """
    # A directory that does not exist yet is one all the same.
    where = to if "://" in to or to.endswith("/") else f"{to}/"
    words = ["backup", where, "--keep", str(keep), "-o", "json"]
    try:
        answer = await run_program(
            [sys.executable, "-P", "-m", "fleetctl.cli.main", *words],
            deadline_s=DEADLINE_S,
            cwd=home,
            env={**os.environ, **variables, "FLEETCTL_HOME": str(home)},
        )
    except TimeoutError as error:
        raise Unavailable(
            f"it took longer than {DEADLINE_S / 3600:.0f} h, and was ended"
        ) from error
    except OSError as error:
        raise Unavailable(f"its process cannot be started: {error.strerror}") from error
    if answer.code:
        told, hint = _parse_errors(answer.errors)
        raise Unavailable(told, hint=hint)
    try:
        written = json.loads(answer.out)
        dropped = len(written["dropped"])
        remark = str(written["remark"])
        return BackupResult(str(written["file"]), int(written["bytes"]), dropped, remark)
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable("its process ended without a word of what it wrote") from error


def _parse_errors(errors: bytes) -> tuple[str, str]:
    """Returns (error, hint) from the output of our own command line."""
    lines = escape_lines(errors.decode("utf-8", "replace"))
    told = [it.removeprefix("error: ") for it in lines if it.startswith("error: ")]
    hints = [it.removeprefix("hint: ") for it in lines if it.startswith("hint: ")]
    last = lines[-1] if lines else "its process failed without a word"
    return (told[0] if told else last), (hints[0] if hints else "")
