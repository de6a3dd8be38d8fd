"""What an apply answers, object by object, as its screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetctl.cli.apply.screens.cost_lines import cost_lines
from fleetctl.cli.output.render import Screen
from fleetctl.common.text import safe
from fleetctl.views.objects import mapping

CLIENT, SERVER, NONE = "client", "server", "none"


SAID_OF_DRY_RUNS = {CLIENT: " (dry run)", SERVER: " (server dry run)", NONE: ""}


def show(
    results: Sequence[Mapping[str, object]],
    reply: Mapping[str, object],
    screen: Screen,
    *,
    dry: str = "",
) -> None:
    rows = []
    for result in results:
        message = f"{safe(str(result.get('key', '')))} {safe(str(result.get('outcome', '')))}{dry}"
        rows.append([message, safe(str(result.get("message") or ""))])
    planned = mapping(reply.get("planned"))
    for result, line in zip(results, screen.table_lines((), rows), strict=True):
        screen.data(line)
        for text in cost_lines(mapping(planned.get(str(result.get("key"))))):
            screen.data(f"  {safe(text)}")
    warnings = reply.get("warnings")
    for warning in warnings if isinstance(warnings, list) else ():
        screen.warn(safe(str(warning)))


def warn_of(
    losses: Sequence[object], hint: str, order: Mapping[str, object], screen: Screen
) -> None:
    """What a dry run would ask about, were it none."""
    for loss in losses:
        screen.warn(safe(str(loss)))
    if losses and not order.get("yes"):
        screen.hint(f"to apply it: {hint}")
