"""`fleetctl mcp`: the API as tools of coding agents, on stdin and stdout or over HTTP."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError, Namespace

from fleetctl.cli.command.flags import Parser, is_namespace
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.team.serve import (
    add_address_flags,
    add_oidc_flag,
    check_tls_flags,
    read_oidc_file,
    split_address,
)
from fleetctl.common.errors import FleetctlError, UsageError
from fleetctl.common.install import install_hint
from fleetctl.common.state_paths import find_state_dir
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE

PAGE = """\
[-n NS] [--max-cost USD] [--read-only]
       [--http ADDRESS:PORT [--name HOST ...] [--tls-cert FILE --tls-key FILE | --behind-proxy]
       [--oidc FILE]]

Serve plan, apply, get, logs and other verbs to a coding agent, over the Model Context
Protocol on stdin and stdout; the agent's program starts it. The agent works in one
namespace, never on Budgets and Sources, and gives no consent: where work or data would
be lost, the person at its program is asked. With --max-cost, calls that may cost more
than what is left of it are refused, and those of unknown cost.

With --http it serves agents of many users at /mcp, and its first line of output is that
address. Everybody needs a token there, on the loopback address too: of `fleetctl token
create`, or of the issuer in the file of --oidc, for this address. The role of the token
binds the tools. Every other address needs TLS, or a proxy that does it. --max-cost then
counts for each user.

examples:
  fleetctl mcp
  fleetctl mcp -n agents --max-cost 20
  fleetctl mcp --read-only
  fleetctl mcp --http 127.0.0.1:8124 --behind-proxy --name fleet.example.org --max-cost 20

exit codes:
  0 ended in order, 1 failed, 2 wrong usage, 3 an address that needs TLS
"""
EXAMPLE = "--http 127.0.0.1:8124"
HTTP_FLAGS = ("names", "tls_cert", "tls_key", "behind_proxy", "oidc")


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument(
        "-n", "--namespace", default="", metavar="NS",
        help=f"where the agent works (default {DEFAULT_NAMESPACE}; with --http the token's own)",
    )  # fmt: skip
    made.add_argument(
        "--max-cost", type=_parse_usd, metavar="USD",
        help="what all its calls together may cost at most, while this runs",
    )  # fmt: skip
    made.add_argument("--read-only", action="store_true", help="let it look, and plan")
    made.add_argument(
        "--http", default="", metavar="ADDRESS:PORT",
        help="serve over HTTP there; port 0: a free one",
    )  # fmt: skip
    add_address_flags(made)
    add_oidc_flag(made)
    return made


def _parse_usd(text: str) -> float:
    try:
        found = float(text.removeprefix("$"))
    except ValueError:
        found = -1.0
    if not math.isfinite(found) or found < 0:
        raise ArgumentTypeError(f"`{text}` must be an amount in USD, such as 20 or 0.5")
    return found


def run(args: Namespace, screen: Screen) -> int:
    if args.namespace and not is_namespace(args.namespace):
        raise UsageError(f"`{args.namespace}` is no namespace", hint="such as `-n agents`")
    if not args.http and (found := next((it for it in HTTP_FLAGS if getattr(args, it)), "")):
        flag = "--" + found.replace("_", "-").replace("names", "name")
        raise UsageError(f"{flag} is for a server over HTTP", hint=EXAMPLE)
    try:
        return _serve_http(args, screen) if args.http else _serve_stdio(args, screen)
    except ModuleNotFoundError as error:
        raise FleetctlError(
            f"the server for agents needs the package `{error.name}`", hint=install_hint("mcp")
        ) from None


def _serve_stdio(args: Namespace, screen: Screen) -> int:
    from fleetctl.agents.agent_limits import AgentLimits
    from fleetctl.agents.mcp_server import serve_agent

    if screen.talk_is_terminal:
        screen.hint("an agent's program starts this and speaks to it; Ctrl-C ends it")
    namespace = args.namespace or DEFAULT_NAMESPACE
    return serve_agent(find_state_dir(), AgentLimits(namespace, args.max_cost, args.read_only))


def _serve_http(args: Namespace, screen: Screen) -> int:
    host, port = split_address(args.http, EXAMPLE)
    check_tls_flags(args)
    from fleetctl.agents.agent_limits import AgentLimits
    from fleetctl.agents.mcp_http import serve_agents
    from fleetctl.server.callers import ListenAddress

    def say(address: str) -> None:
        screen.data(address)
        screen.flush()

    return serve_agents(
        find_state_dir(),
        ListenAddress(host, port, args.behind_proxy, bool(args.tls_cert), tuple(args.names)),
        AgentLimits(args.namespace, args.max_cost, args.read_only),
        oidc=read_oidc_file(args.oidc),
        cert=args.tls_cert,
        key=args.tls_key,
        say=say,
    )
