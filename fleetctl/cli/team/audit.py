"""`fleetctl audit`: who changed something over the server, and who read logs."""

from __future__ import annotations

from argparse import Namespace

from fleetctl.cli.command.flags import (
    Parser,
    add_all_namespaces,
    add_output,
    parse_count,
    parse_moment,
)
from fleetctl.cli.output.output_rows import OutputRows, write_rows
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line, format_age, format_timestamp
from fleetctl.stores.access import AccessStore, AuditRow

PAGE = """\
[--user USER] [--since TIME] [-n NS | -A] [--limit N] [-o table|json|csv]

Show who changed something over `fleetctl serve`, who read logs, and who made or ended
tokens, the newest last. The record only grows. Changes by verbs on the machine itself
are its own user's, and are not in it.

examples:
  fleetctl audit -A
  fleetctl audit --user ana --since 1d
  fleetctl audit -n team -o json

exit codes:
  0 ok, 2 wrong usage
"""
LIMIT = 1000
HEADER = ("AGE", "USER", "ACTION", "OBJECT", "NAMESPACE", "CODE", "TOKEN", "ADDRESS")
CSV = ("at", "user", "action", "object", "namespace", "code", "token", "address")


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("--user", default="", metavar="USER", help="only of this one")
    made.add_argument(
        "--since", type=parse_moment, metavar="TIME", help="only the last 45s, 5m, 2h, 7d"
    )
    made.add_argument(
        "--limit", type=parse_count, default=LIMIT, metavar="N", help=f"at most (default {LIMIT})"
    )
    add_all_namespaces(made)
    add_output(made, "table", "json", "csv")
    return made


def run(args: Namespace, screen: Screen) -> int:
    now_s = SystemClock().now_s()
    found = AccessStore(find_state_dir()).audit(
        since_s=0.0 if args.since is None else args.since(now_s),
        user=args.user,
        namespace="" if args.everywhere else args.namespace,
        limit=args.limit,
    )
    written = OutputRows(
        table=lambda: (HEADER, (_build_cells(row, now_s) for row in found)),
        documents=lambda: map(build_audit_document, found),
        plain=lambda: (CSV, ([build_audit_document(it)[key] for key in CSV] for it in found)),
    )
    if not write_rows(written, args.output, screen):
        screen.talk("nothing has been done over the server")
    return 0


def _build_cells(row: AuditRow, now_s: float) -> list[str]:
    return [
        format_age(now_s - row.at_s),
        escape_line(row.user),
        escape_line(row.action),
        escape_line(row.object) or "-",
        escape_line(row.namespace) or "-",
        str(row.code),
        row.token or "-",
        escape_line(row.address) or "-",
    ]


def build_audit_document(row: AuditRow) -> dict[str, object]:
    """Returns an act as a document."""
    return {
        "at": format_timestamp(row.at_s),
        "user": row.user,
        "action": row.action,
        "object": row.object,
        "namespace": row.namespace,
        "code": row.code,
        "token": row.token or None,
        "address": row.address or None,
    }
