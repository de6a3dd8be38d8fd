"""Ask a person before running work or data is lost. Only on a terminal; nowhere else is asked.

Called by apply and delete. What would be lost, the controller or the verb says.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from fleetctl.cli.output.render import Screen
from fleetctl.common.text import safe

SPARED = "with --rollout=FinishRunning running work ends first"


def allowed_by_a_person(reply: Mapping[str, object], screen: Screen, *, piped: bool) -> bool:
    """Whether a refusal was for losses, and a person at the terminal accepts them.

    piped: stdin is used up by a manifest, so nobody can answer there.
    """
    losses = reply.get("losses")
    if not isinstance(losses, list) or piped:
        return False
    hint = str(reply.get("hint") or "")
    spares = "--rollout" in hint
    return accepts([str(loss) for loss in losses], screen, otherwise=SPARED if spares else "")


def accepts(losses: Sequence[str], screen: Screen, *, otherwise: str = "") -> bool:
    """The losses, what would spare them, and a question; only `y` and `yes` are a yes. False
    without a terminal.
    """
    if not (screen.talk_is_terminal and sys.stdin.isatty()):
        return False
    for loss in losses:
        screen.warn(safe(loss))
    if otherwise:
        screen.hint(otherwise)
    screen.ask("go on? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
