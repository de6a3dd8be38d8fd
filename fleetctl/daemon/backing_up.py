"""One backup, made by `fleetctl backup` as a process of its own: the libraries that reach other
services load and fail there, credentials are in its environment alone, and no tick waits.

Called by the engine when a schedule says so.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from fleetctl.common.errors import Unavailable
from fleetctl.common.text import safe_lines
from fleetctl.engine.kinds.backups.backups import Made
from fleetctl.providers.programs import ask

# A state of gigabytes over a slow line; one that takes longer is ended, and said to have failed.
DEADLINE_S = 3_600.0


async def backed_up(home: Path, to: str, keep: int, variables: Mapping[str, str]) -> Made:
    """variables: what its environment has beside ours. Raises Unavailable; then there is no new
    backup that counts.
    """
    # A directory that is not there yet is one all the same.
    where = to if "://" in to or to.endswith("/") else f"{to}/"
    words = ["backup", where, "--keep", str(keep), "-o", "json"]
    try:
        answer = await ask(
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
        told, hint = _said(answer.errors)
        raise Unavailable(told, hint=hint)
    try:
        written = json.loads(answer.out)
        dropped, remark = len(written["dropped"]), str(written["remark"])
        return Made(str(written["file"]), int(written["bytes"]), dropped, remark)
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable("its process ended without a word of what it wrote") from error


def _said(errors: bytes) -> tuple[str, str]:
    """(what went wrong, a hint) of what our own command line wrote."""
    lines = safe_lines(errors.decode("utf-8", "replace"))
    told = [it.removeprefix("error: ") for it in lines if it.startswith("error: ")]
    hints = [it.removeprefix("hint: ") for it in lines if it.startswith("hint: ")]
    last = lines[-1] if lines else "its process failed without a word"
    return (told[0] if told else last), (hints[0] if hints else "")
