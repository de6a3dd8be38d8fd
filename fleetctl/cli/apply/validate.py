"""`fleetctl validate`: checks manifests in this process. Stores nothing and needs no controller."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetctl.cli.apply.request import collect_documents, collect_policies
from fleetctl.cli.apply.runs.work_flags import add_sweep_flags, name_flags_in_errors
from fleetctl.cli.command.flags import (
    Parser,
    add_allow_missing,
    add_manifests,
    add_policies,
    add_set,
    request_namespace,
)
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.remote import REMOTE
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line
from fleetctl.views.objects import as_mapping

if TYPE_CHECKING:
    from fleetctl.apply.policies.judge import LoadedPolicy
    from fleetctl.common.remote import RemoteFleet

PAGE = """\
-f FILE|DIR|URL|- [-f ...] [-R] [--policy FILE|DIR]

Check manifests and report everything that is wrong with them, also what is known to
be refused by what is stored and set up here, or by a policy. Stores nothing and asks
no cloud. With --policy alone it checks what is stored.

examples:
  fleetctl validate -f sweep.yaml
  fleetctl validate -f jobs/ -f volumes.yaml
  fleetctl validate -f jobs/ --values prod.yaml --set gpu=A100:4
  generate.py | fleetctl validate -f -
  fleetctl validate -f jobs/ --policy policies/
  fleetctl validate --policy policies/

exit codes:
  0 all is right, 2 something is wrong, 3 a policy denies it, 4 no such file
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    add_manifests(made, required=False)
    add_policies(made)
    add_set(made)
    add_allow_missing(made)
    add_sweep_flags(made)
    return made


def run(args: Namespace, screen: Screen) -> int:
    from fleetctl.apply.local_proposal import check_manifests
    from fleetctl.stores.read.read_only import open_readonly

    if (remote := REMOTE.get()) is not None:
        return _validate_over_server(args, remote, screen)
    policies = collect_policies(args)
    if not args.files:
        return _of_store(args, policies, screen)
    order: dict[str, object] = {"allowMissing": args.allow_missing, **request_namespace(args)}
    state_dir = find_state_dir()
    documents = collect_documents(args, screen)
    with name_flags_in_errors(), open_readonly(state_dir) as stored:
        manifests, doubts = check_manifests(
            state_dir,
            stored,
            documents,
            order,
            policies,
        )
    for manifest in manifests:
        screen.data(f"{escape_line(manifest.key)} valid")
        for warning in manifest.warnings:
            screen.warn(escape_line(warning))
    for warning in doubts:
        screen.warn(escape_line(warning))
    return 0


def _validate_over_server(args: Namespace, remote: RemoteFleet, screen: Screen) -> int:
    """Checks files against the store of a server."""
    from fleetctl.cli.team.server_plan import request_plan, warn_and_refuse

    if not args.files or args.policies:
        raise UsageError(
            "over a server `fleetctl validate` checks files, by the policies that are stored there",
            hint="fleetctl validate -f FILE",
        )
    order: dict[str, object] = {"allowMissing": args.allow_missing, **request_namespace(args)}
    reply = request_plan(remote, collect_documents(args, screen), {**order, "strict": True}, screen)
    warn_and_refuse(reply, screen)
    objects = as_mapping(reply.get("plan")).get("objects")
    for found in objects if isinstance(objects, list) else ():
        screen.data(f"{escape_line(str(found['object']))} valid")
    return 0


def _of_store(
    args: Namespace,
    policies: Sequence[LoadedPolicy],
    screen: Screen,
) -> int:
    """Checks the stored objects by the stored policies and these. Raises PolicyDenied."""
    if not args.policies:
        raise UsageError("`-f` is missing", hint="or --policy, to check what is stored")
    from fleetctl.apply.policies.judge import stored_judged
    from fleetctl.apply.policies.report import raise_if_denied, warnings_of
    from fleetctl.stores.read.read_only import open_readonly

    with open_readonly(find_state_dir()) as stored:
        found = stored_judged(stored, policies, SystemClock().now_s())
    for it in found:
        if not any(verdict.deny for verdict in it.verdicts):
            screen.data(f"{escape_line(it.key)} valid")
    for warning in warnings_of(found):
        screen.warn(escape_line(warning))
    raise_if_denied(found)
    return 0
