"""`fleetctl validate`: check manifests in this process. Stores nothing and needs no controller."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetctl.cli.apply.request import documents_meant, policies_meant
from fleetctl.cli.command.flags import (
    Parser,
    add_allow_missing,
    add_manifests,
    add_policies,
    add_set,
    said_namespace,
)
from fleetctl.cli.output.render import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.home import home
from fleetctl.common.text import safe

if TYPE_CHECKING:
    from fleetctl.apply.policies.judge import Policy

PAGE = """\
-f FILE|DIR|URL|- [-f ...] [-R] [--policy FILE|DIR]

Check manifests and tell everything that is wrong with them, also what is known to
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
    return made


def run(args: Namespace, screen: Screen) -> int:
    from fleetctl.cli.apply.predictions import checked
    from fleetctl.stores.read.read_only import open_readonly

    policies = policies_meant(args)
    if not args.files:
        return _of_store(args, policies, screen)
    order: dict[str, object] = {"allowMissing": args.allow_missing, **said_namespace(args)}
    state_dir = home()
    documents = documents_meant(args, screen)
    with open_readonly(state_dir) as stored:
        manifests, doubts = checked(state_dir, stored, documents, order, policies)
    for manifest in manifests:
        screen.data(f"{safe(manifest.key)} valid")
        for warning in manifest.warnings:
            screen.warn(safe(warning))
    for warning in doubts:
        screen.warn(safe(warning))
    return 0


def _of_store(args: Namespace, policies: Sequence[Policy], screen: Screen) -> int:
    """What is stored, by its policies and these. Raises Denied."""
    if not args.policies:
        raise UsageError("`-f` is missing", hint="or --policy, to check what is stored")
    from fleetctl.apply.policies.given import stored_judged
    from fleetctl.apply.policies.told import refuse, warnings_of
    from fleetctl.stores.read.read_only import open_readonly

    with open_readonly(home()) as stored:
        found = stored_judged(stored, policies, SystemClock().now_s())
    for it in found:
        if not any(verdict.deny for verdict in it.verdicts):
            screen.data(f"{safe(it.key)} valid")
    for warning in warnings_of(found):
        screen.warn(safe(warning))
    refuse(found)
    return 0
