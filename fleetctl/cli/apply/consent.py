"""Asks the user before running work or data is lost, on a terminal alone.

Called by apply, set, retry and delete. The controller or the verb names the losses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from fleetctl.cli.output.screen import Screen
from fleetctl.common.text import escape_line
from fleetctl.daemon.client.socket_client import raise_refusal

SPARED = "with --rollout=FinishRunning running work ends first"


def send_with_consent(
    ask: Callable[[Mapping[str, object]], Mapping[str, object]],
    request: Mapping[str, object],
    screen: Screen,
    *,
    piped: bool = False,
) -> Mapping[str, object]:
    """Returns the reply to a request, sent again with `yes` where the user accepts the losses.
    Raises Refusal.

    ask: sends it to the controller. piped: stdin is used up by a manifest, so the user cannot
    answer.
    """
    reply = ask(request)
    if not reply.get("ok") and _accepts_losses(reply, screen, piped=piped):
        reply = ask({**request, "yes": True})
    if not reply.get("ok"):
        raise_refusal(reply)
    return reply


def _accepts_losses(
    reply: Mapping[str, object],
    screen: Screen,
    *,
    piped: bool,
) -> bool:
    """Returns true where a refusal was for losses, and the user at the terminal accepts them."""
    losses = reply.get("losses")
    if not isinstance(losses, list) or piped:
        return False
    hint = str(reply.get("hint") or "")
    spares = "--rollout" in hint
    return confirm_losses(
        [str(loss) for loss in losses], screen, otherwise=SPARED if spares else ""
    )


def confirm_losses(
    losses: Sequence[str],
    screen: Screen,
    *,
    otherwise: str = "",
    of: str = "",
) -> bool:
    """Shows the losses, a way to spare them, and a question; only `y` and `yes` accept. of: the key
    of the object, where there are several. False without a terminal.
    """
    if not (screen.talk_is_terminal and sys.stdin.isatty()):
        return False
    for loss in losses:
        screen.warn(escape_line(loss))
    if otherwise:
        screen.hint(otherwise)
    screen.ask(f"delete {escape_line(of)}? [y/N] " if of else "go on? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
