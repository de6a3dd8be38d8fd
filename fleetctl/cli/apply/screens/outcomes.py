"""The screen for the reply to an apply, object by object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetctl.cli.output.screen import Screen
from fleetctl.common.text import escape_line
from fleetctl.views.objects import as_mapping

CLIENT = "client"
SERVER = "server"
NONE = "none"


SAID_OF_DRY_RUNS = {CLIENT: " (dry run)", SERVER: " (server dry run)", NONE: ""}


def print_outcomes(
    results: Sequence[Mapping[str, object]],
    reply: Mapping[str, object],
    screen: Screen,
    *,
    dry: str = "",
) -> None:
    rows = []
    for result in results:
        message = (
            f"{escape_line(str(result.get('key', '')))} "
            f"{escape_line(str(result.get('outcome', '')))}{dry}"
        )
        rows.append([message, escape_line(str(result.get("message") or ""))])
    planned = as_mapping(reply.get("planned"))
    for result, line in zip(results, screen.table_lines((), rows), strict=True):
        screen.data(line)
        for text in cost_lines_of(planned.get(str(result.get("key")))):
            screen.data(f"  {escape_line(text)}")
    warnings = reply.get("warnings")
    for warning in warnings if isinstance(warnings, list) else ():
        screen.warn(escape_line(str(warning)))


def cost_lines_of(planned: object) -> list[str]:
    """Returns the lines on an object's placement and cost. planned: its plan, as `plan -o json` has
    it."""
    lines = as_mapping(as_mapping(planned).get("shown")).get("lines")
    return [str(it) for it in lines] if isinstance(lines, list) else []


def warn_of(
    losses: Sequence[object],
    hint: str,
    order: Mapping[str, object],
    screen: Screen,
) -> None:
    """Warns of the losses that an apply would ask about, in a dry run."""
    for loss in losses:
        screen.warn(escape_line(str(loss)))
    if losses and not order.get("yes"):
        screen.hint(f"to apply it: {hint}")
