"""Ask a person before running work or data is lost. Only on a terminal; nowhere else is asked.

Called by apply, set, retry and delete. What would be lost, the controller or the verb says.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from fleetctl.cli.output.render import Screen
from fleetctl.common.text import safe
from fleetctl.daemon.reach.client import raise_refusal

SPARED = "with --rollout=FinishRunning running work ends first"


def agreed(
    ask: Callable[[Mapping[str, object]], Mapping[str, object]],
    request: Mapping[str, object],
    screen: Screen,
    *,
    piped: bool = False,
) -> Mapping[str, object]:
    """The reply to a request, asked again with `yes` where a person accepts the losses. Raises
    Refusal.

    ask: sends it to the controller. piped: stdin is used up by a manifest, so nobody can answer.
    """
    reply = ask(request)
    if not reply.get("ok") and _accepted(reply, screen, piped=piped):
        reply = ask({**request, "yes": True})
    if not reply.get("ok"):
        raise_refusal(reply)
    return reply


def _accepted(reply: Mapping[str, object], screen: Screen, *, piped: bool) -> bool:
    """Whether a refusal was for losses, and a person at the terminal accepts them."""
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
