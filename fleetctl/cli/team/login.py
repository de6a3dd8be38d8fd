"""`fleetctl login` and `fleetctl config`: the server of a team that the other verbs use."""

from __future__ import annotations

import getpass
import json
import os
import sys
from argparse import Namespace

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.team.api_client import ApiClient
from fleetctl.cli.team.contexts import HERE, TOKEN_VARIABLE, ContextFile, ServerContext
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.text import escape_line

PAGES = {
    "login": """\
URL [--name NAME]

Keep the token of a server, and use that server from now on. The token comes from
FLEETCTL_TOKEN, or from standard input; on the server `fleetctl token create` makes it.
It is stored in a file that you alone can read.

examples:
  fleetctl login https://fleet.example.org
  fleetctl login https://fleet.example.org --name team < token.txt
  FLEETCTL_TOKEN=flt_... fleetctl login http://127.0.0.1:8123

exit codes:
  0 ok, 1 the server does not answer, 2 wrong usage, 3 the token does not hold
""",
    "config": """\
use NAME|local | list | remove NAME

Choose which server the verbs use: one of `fleetctl login`, or `local` for the state of
this machine. `--server URL` and FLEETCTL_SERVER choose one for a single command.

examples:
  fleetctl config use team
  fleetctl config use local
  fleetctl config list

exit codes:
  0 ok, 2 wrong usage, 4 no such name
""",
}


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGES[verb])
    made.set_defaults(verb=verb)
    if verb == "login":
        made.add_argument("url", metavar="URL", help="address of `fleetctl serve`")
        made.add_argument("--name", default="team", metavar="NAME", help="default %(default)s")
    else:
        made.add_argument("words", nargs="+", metavar="use|list|remove", help="what to do")
    return made


def run(args: Namespace, screen: Screen) -> int:
    if args.verb == "login":
        return _log_in(args, screen)
    act, *rest = args.words
    known = ContextFile()
    if act == "list" and not rest:
        _list_contexts(known, screen)
        return 0
    if act not in ("use", "remove") or len(rest) != 1:
        raise UsageError("say what to do", hint="fleetctl config use NAME, list, or remove NAME")
    (name,) = rest
    if name not in known.contexts and name != HERE:
        raise NotFound(f"there is no server `{name[:63]}`", hint="`fleetctl config list` shows all")
    if act == "remove":
        known.contexts.pop(name, None)
    known.current = name if act == "use" else HERE if known.current == name else known.current
    known.write()
    screen.data(f"{escape_line(name)} is {'in use' if act == 'use' else 'removed'}")
    return 0


def _log_in(args: Namespace, screen: Screen) -> int:
    if args.name == HERE or "/" in args.name or not args.name.isprintable():
        raise UsageError(f"`{args.name[:63]}` cannot name a server")
    ApiClient(args.url)  # refuses what is no address, before a token is asked for
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        asked = sys.stdin.isatty()
        token = getpass.getpass("token: ") if asked else sys.stdin.readline()
    client = ApiClient(args.url, token.strip())
    found = json.loads(client.get("whoami")[1])
    known = ContextFile()
    known.contexts[args.name] = ServerContext(args.name, client.url, token.strip())
    known.current = args.name
    known.write()
    where = "all namespaces" if found["namespace"] == "*" else f"namespace {found['namespace']}"
    screen.data(
        f"{escape_line(str(found['user']))} is {escape_line(str(found['role']))} in"
        f" {escape_line(where)} of {client.url}"
    )
    screen.hint("fleetctl config use local: back to the state of this machine")
    return 0


def _list_contexts(known: ContextFile, screen: Screen) -> None:
    rows = [[("*" if known.current == HERE else "-"), HERE, "-"]]
    for it in sorted(known.contexts.values()):
        used = "*" if known.current == it.name else "-"
        rows.append([used, escape_line(it.name), escape_line(it.server)])
    screen.table(("IN USE", "NAME", "SERVER"), rows)
