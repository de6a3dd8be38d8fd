"""Requests the plan of manifests from a server, for `plan`, `diff` and `validate`. The files that
they name go with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fleetctl.cli.output.screen import Screen
from fleetctl.cli.team.inline_files import with_files_sent
from fleetctl.common.errors import FleetctlError
from fleetctl.common.remote import RemoteFleet
from fleetctl.common.text import escape_line
from fleetctl.daemon.client.socket_client import raise_refusal
from fleetctl.manifest.files.documents import Document

if TYPE_CHECKING:
    from fleetctl.apply.plan.plan_report import PlanReport

Reply = Mapping[str, object]


def request_plan(
    remote: RemoteFleet,
    documents: Sequence[Document],
    order: Mapping[str, object],
    screen: Screen,
) -> Reply:
    """Returns the reply, which has a plan also where an apply would be refused. Raises
    RequestRefused where there can be none."""
    made = with_files_sent(documents, remote, screen.talk).documents
    sent = [document._asdict() for document in made]
    reply = remote.send({"verb": "plan", "documents": sent, **order})
    if not isinstance(reply.get("plan"), dict):
        raise_refusal(reply)
    return reply


def request_report(
    remote: RemoteFleet,
    documents: Sequence[Document],
    order: Mapping[str, object],
    screen: Screen,
) -> tuple[PlanReport, Reply]:
    """Returns the plan as this process shows its own, and the reply. Raises FleetctlError where
    the server's version has another form of it."""
    from fleetctl.apply.plan.report_wire import load_report

    reply = request_plan(remote, documents, {**order, "report": True}, screen)
    found = load_report(reply.get("report"))
    if found is None:
        raise FleetctlError(
            f"the plan of {remote.url} has a form that this version does not know",
            hint="`fleetctl version` shows both versions; bring the older one up to the newer",
        )
    return found, reply


def warn_and_refuse(reply: Reply, screen: Screen) -> None:
    """Prints the warnings of a plan. Raises RequestRefused for what an apply would be refused
    for."""
    warnings = reply.get("warnings")
    for warning in warnings if isinstance(warnings, list) else ():
        screen.warn(escape_line(str(warning)))
    if not reply.get("ok"):
        raise_refusal(reply)
