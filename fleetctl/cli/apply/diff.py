"""`fleetctl diff`: the differences between stored objects and files, object by object."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from fleetctl.cli.apply.request import collect_documents
from fleetctl.cli.apply.runs.work_flags import add_sweep_flags, name_flags_in_errors
from fleetctl.cli.command.flags import (
    Parser,
    add_allow_missing,
    add_manifests,
    add_set,
    request_namespace,
)
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import FleetctlError, UsageError
from fleetctl.common.remote import REMOTE
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line
from fleetctl.views.kinds import parse_target

if TYPE_CHECKING:
    from fleetctl.common.remote import RemoteFleet

SAME, DIFFERS, ERROR = 0, 1, 2


PAGE = """\
-f FILE|DIR|URL|- [-f ...] [-R] [--prune --applyset NAME] | source/NAME

Show how what is stored differs from what these files say, or the newest commit of a
Source: a unified diff of spec, labels and annotations for each object. Needs no
controller and changes nothing.

examples:
  fleetctl diff -f sweep.yaml
  fleetctl diff -f jobs/ --prune --applyset nightly
  fleetctl diff -f sweep.yaml && echo nothing to apply
  fleetctl diff source/fleet

exit codes:
  0 no difference, 1 differences, 2 or more an error (as kubectl's)
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("source", nargs="?", metavar="source/NAME", help="instead of files")
    add_manifests(made, required=False)
    add_set(made)
    made.add_argument("--applyset", default="", metavar="NAME", help="as apply has it")
    made.add_argument(
        "--prune", action="store_true", help="also what apply would delete from the set"
    )
    made.add_argument("--max-prune", default="100%", metavar="N|P%", help="as apply has it")
    add_allow_missing(made)
    add_sweep_flags(made)
    return made


def run(args: Namespace, screen: Screen) -> int:
    try:
        with name_flags_in_errors():
            lines, refused = _list_differences(args, screen)
    except FleetctlError as error:
        screen.report(error)
        return max(ERROR, error.exit_code)
    for line in lines:
        screen.data(screen.colour_sign(line))
    if refused is not None:
        screen.error(str(refused))
        return ERROR
    if lines:
        return DIFFERS
    return SAME


def _list_differences(args: Namespace, screen: Screen) -> tuple[list[str], FleetctlError | None]:
    """Returns the differences, and the error for which an apply of them would be refused."""
    if bool(args.source) == bool(args.files):
        hint = "`fleetctl diff -f FILE`, or `fleetctl diff source/NAME`"
        raise UsageError("`fleetctl diff` takes either -f FILE or one Source", hint=hint)
    if args.source:
        if REMOTE.get() is not None:
            raise UsageError(
                "the difference of a Source is found on the machine of the controller",
                hint="`fleetctl diff -f FILE` works over a server",
            )
        return _of_source(args, screen), None
    if (remote := REMOTE.get()) is not None:
        return _list_server_differences(args, remote, screen), None
    from fleetctl.apply.local_proposal import format_diff, looked_at, propose_locally
    from fleetctl.manifest.problems import ManifestErrors
    from fleetctl.stores.read.read_only import open_readonly

    documents = collect_documents(args, screen)
    order = _order_of(args)
    state_dir = find_state_dir()
    with open_readonly(state_dir) as stored:
        found = propose_locally(state_dir, stored, documents, order)
        providers = found.accounts.backends
        wrong, doubts = looked_at(
            stored,
            found.manifests,
            found.changes,
            providers,
            order,
            found.looked,
        )
    for warning in (*found.warnings, *doubts):
        screen.warn(escape_line(warning))
    lines = [line for change in found.changes for line in format_diff(change)]
    return lines, ManifestErrors(wrong) if wrong else None


def _list_server_differences(args: Namespace, remote: RemoteFleet, screen: Screen) -> list[str]:
    from fleetctl.cli.team.server_plan import request_plan, warn_and_refuse

    documents = collect_documents(args, screen)
    reply = request_plan(remote, documents, {**_order_of(args), "diff": True}, screen)
    lines = reply.get("diff")
    warn_and_refuse(reply, screen)
    return [str(line) for line in lines] if isinstance(lines, list) else []


def _order_of(args: Namespace) -> dict[str, object]:
    return {
        "applyset": args.applyset,
        "prune": args.prune,
        "maxPrune": args.max_prune,
        "allowMissing": args.allow_missing,
        **request_namespace(args),
    }


def _of_source(args: Namespace, screen: Screen) -> list[str]:
    from fleetctl.apply.local_proposal import format_diff
    from fleetctl.cli.apply.of_source import changes_of
    from fleetctl.stores.read.read_only import open_readonly

    state_dir = find_state_dir()
    with open_readonly(state_dir) as stored:
        changes, warnings = changes_of(state_dir, stored, parse_target(args.source, args.namespace))
    for warning in warnings:
        screen.warn(escape_line(warning))
    return [line for change in changes for line in format_diff(change)]
