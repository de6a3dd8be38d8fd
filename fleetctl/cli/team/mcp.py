"""`fleetctl mcp`: the API as tools of a coding agent, on stdin and stdout."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError, Namespace

from fleetctl.cli.command.flags import Parser, is_namespace
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import FleetctlError, UsageError
from fleetctl.common.install import install_hint
from fleetctl.common.state_paths import find_state_dir
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE

PAGE = """\
[-n NS] [--max-cost USD] [--read-only]

Serve plan, apply, get, logs and other verbs to a coding agent, over the Model Context
Protocol on stdin and stdout; the agent's program starts it. The agent works in one
namespace, never on Budgets and Sources, and gives no consent: where work or data would
be lost, the person at its program is asked. With --max-cost, calls that may cost more
than what is left of it are refused, and those of unknown cost.

examples:
  fleetctl mcp
  fleetctl mcp -n agents --max-cost 20
  fleetctl mcp --read-only

exit codes:
  0 ended in order, 1 failed, 2 wrong usage
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument(
        "-n", "--namespace", default=DEFAULT_NAMESPACE, metavar="NS",
        help="where the agent works (default %(default)s)",
    )  # fmt: skip
    made.add_argument(
        "--max-cost", type=_parse_usd, metavar="USD",
        help="what all its calls together may cost at most, while this runs",
    )  # fmt: skip
    made.add_argument("--read-only", action="store_true", help="let it look, and plan")
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
    if not is_namespace(args.namespace):
        raise UsageError(f"`{args.namespace}` is no namespace", hint="such as `-n agents`")
    try:
        from fleetctl.agents.agent_limits import AgentLimits
        from fleetctl.agents.mcp_server import serve_agent
    except ModuleNotFoundError as error:
        raise FleetctlError(
            f"the server for agents needs the package `{error.name}`", hint=install_hint("mcp")
        ) from None
    if screen.talk_is_terminal:
        screen.hint("an agent's program starts this and speaks to it; Ctrl-C ends it")
    limits = AgentLimits(args.namespace, args.max_cost, args.read_only)
    return serve_agent(find_state_dir(), limits)
