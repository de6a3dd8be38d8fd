"""`fleetctl token`: makes, lists and ends the tokens of a team's server."""

from __future__ import annotations

import getpass
import re
from argparse import Namespace

from fleetctl.cli.command.flags import Parser, add_output, duration_s, is_namespace, one_of
from fleetctl.cli.output.output_rows import OutputRows, write_rows
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line, format_age, format_timestamp
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.stores.access import EVERYWHERE, ROLES, AccessStore, TokenRow

PAGE = """\
create [USER] [--role viewer|editor|admin] [--namespace NS | --all-namespaces]
       [--expires TIME] | list | revoke ID

Make a token for a user of `fleetctl serve`, list them with their last use, or end one.
A viewer reads; an editor also applies, and so runs programs wherever a provider does, with
provider `local` on this machine; an admin also reads the audit and overrides Sources.
The token is shown once: only its digest is stored.

examples:
  fleetctl token create ana --role editor --namespace team --expires 30d
  fleetctl token create ci --role viewer --all-namespaces
  fleetctl token list
  fleetctl token revoke 1f2e3d4c

exit codes:
  0 ok, 2 wrong usage, 4 no such token
"""
HEADER = ("ID", "USER", "ROLE", "NAMESPACE", "STATUS", "EXPIRES", "LAST USED", "AGE")
CSV = ("id", "user", "role", "namespace", "status", "expiresAt", "lastUsedAt", "createdAt")
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,62}")


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("words", nargs="+", metavar="create|list|revoke", help="what to do")
    made.add_argument(
        "--role", type=one_of(*ROLES), default=ROLES[0], metavar="|".join(ROLES),
        help="what its user may do (default %(default)s)",
    )  # fmt: skip
    made.add_argument(
        "-n", "--namespace", default=DEFAULT_NAMESPACE, metavar="NS",
        help="where (default %(default)s)",
    )  # fmt: skip
    made.add_argument(
        "-A", "--all-namespaces", action="store_true", dest="everywhere",
        help="in all of them, and for what belongs to none",
    )  # fmt: skip
    made.add_argument(
        "--expires", type=duration_s, metavar="TIME", help="how long it holds; default: for good"
    )
    add_output(made, "table", "json", "csv")
    return made


def run(args: Namespace, screen: Screen) -> int:
    act, *rest = args.words
    access = AccessStore(find_state_dir())
    if act == "create":
        return _create_token(access, rest, args, screen)
    if act == "list" and not rest:
        return _list_tokens(access, args, screen)
    if act == "revoke" and len(rest) == 1:
        row = access.revoke_token(rest[0])
        access.add_audit(getpass.getuser(), "token revoke", keys=row.id, namespace=row.namespace)
        screen.data(f"token {row.id} of {escape_line(row.user)} is revoked")
        return 0
    raise UsageError(
        f"`fleetctl token {' '.join(args.words)[:60]}` is not known",
        hint="fleetctl token create USER, token list, or token revoke ID",
    )


def _create_token(
    access: AccessStore,
    rest: list[str],
    args: Namespace,
    screen: Screen,
) -> int:
    user = rest[0] if rest else getpass.getuser()
    if len(rest) > 1 or not _USER.fullmatch(user):
        raise UsageError(
            f"`{' '.join(rest)[:80]}` cannot name a user",
            hint="letters, digits and `._@+-`, such as ana or ana@example.org",
        )
    if not args.everywhere and not is_namespace(args.namespace):
        raise UsageError(f"`{args.namespace[:63]}` cannot name a namespace")
    until_s = None if args.expires is None else SystemClock().now_s() + args.expires
    namespace = EVERYWHERE if args.everywhere else args.namespace
    row, text = access.create_token(user, args.role, namespace, expires_at_s=until_s)
    access.add_audit(
        getpass.getuser(), "token create", keys=f"{row.id} of {user}", namespace=namespace
    )
    screen.data(text)
    screen.talk(f"token {row.id}: {user} is {row.role} in {_format_where(row)}; shown only now")
    screen.hint("FLEETCTL_TOKEN=... fleetctl --server URL get jobs, or `fleetctl login URL`")
    return 0


def _list_tokens(
    access: AccessStore,
    args: Namespace,
    screen: Screen,
) -> int:
    now_s = SystemClock().now_s()
    found = access.tokens()
    written = OutputRows(
        table=lambda: (HEADER, (_build_cells(row, now_s) for row in found)),
        documents=lambda: (_build_document(row, now_s) for row in found),
        plain=lambda: (CSV, ([_build_document(it, now_s)[key] for key in CSV] for it in found)),
    )
    if not write_rows(written, args.output, screen):
        screen.talk("no tokens")
    return 0


def _status_of(row: TokenRow, now_s: float) -> str:
    if row.revoked_at_s is not None:
        return "Revoked"
    return "Active" if row.holds(now_s) else "Expired"


def _format_where(row: TokenRow) -> str:
    return "all namespaces" if row.namespace == EVERYWHERE else row.namespace


def _build_cells(row: TokenRow, now_s: float) -> list[str]:
    left_s = None if row.expires_at_s is None else row.expires_at_s - now_s
    expires = "never" if left_s is None else f"in {format_age(left_s)}" if left_s > 0 else "-"
    used = "never" if row.used_at_s is None else f"{format_age(now_s - row.used_at_s)} ago"
    return [
        row.id,
        escape_line(row.user),
        row.role,
        escape_line(row.namespace),
        _status_of(row, now_s),
        expires,
        used,
        format_age(now_s - row.created_at_s),
    ]


def _build_document(row: TokenRow, now_s: float) -> dict[str, object]:
    return {
        "id": row.id,
        "user": row.user,
        "role": row.role,
        "namespace": row.namespace,
        "status": _status_of(row, now_s),
        "createdAt": format_timestamp(row.created_at_s),
        "expiresAt": None if row.expires_at_s is None else format_timestamp(row.expires_at_s),
        "lastUsedAt": None if row.used_at_s is None else format_timestamp(row.used_at_s),
    }
