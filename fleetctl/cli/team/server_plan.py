"""Requests the plan of manifests from a server, for `plan`, `diff` and `validate`. The files that
they name go with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetctl.cli.output.screen import Screen
from fleetctl.cli.team.inline_files import with_files_sent
from fleetctl.common.remote import RemoteFleet
from fleetctl.common.text import escape_line
from fleetctl.daemon.client.socket_client import raise_refusal
from fleetctl.manifest.files.documents import Document

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


def warn_and_refuse(reply: Reply, screen: Screen) -> None:
    """Prints the warnings of a plan. Raises RequestRefused for what an apply would be refused
    for."""
    warnings = reply.get("warnings")
    for warning in warnings if isinstance(warnings, list) else ():
        screen.warn(escape_line(str(warning)))
    if not reply.get("ok"):
        raise_refusal(reply)
