"""`fleetctl plan`: what an apply would do, where it would run and what it would cost.

Offline: needs no controller, no account and no network, and changes nothing.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.cli.apply.plans import review
from fleetctl.cli.apply.plans.review import add_review
from fleetctl.cli.apply.request import documents_meant, policies_meant
from fleetctl.cli.command.flags import (
    Parser,
    add_allow_missing,
    add_manifests,
    add_output,
    add_policies,
    add_set,
    said_namespace,
)
from fleetctl.cli.command.values import money
from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import FleetctlError
from fleetctl.common.home import home
from fleetctl.common.text import safe

if TYPE_CHECKING:
    from fleetctl.apply.cost.report import Report
    from fleetctl.apply.review.conditions import Condition

NO_CHANGE, ERROR, CHANGES = 0, 1, 2


PAGE = """\
-f FILE|DIR|URL|- [-f ...] [-R] [--out FILE] [-o text|json|markdown]
    [--diff-from REV [--diff-to REV]] [--fail-on CONDITIONS] [--detailed-exitcode]

Show what an apply would do, where it would run and what it would cost, before the
first dollar. Works offline: no account, no controller, nothing is changed. What is
missing and may come later, such as an account, is warned about; `apply` refuses it.

examples:
  fleetctl plan -f sweep.yaml
  fleetctl plan -f jobs/ --out nightly.plan && fleetctl apply nightly.plan
  fleetctl plan -f jobs/ -o markdown > comment.md
  fleetctl plan -f jobs/ --diff-from origin/main --fail-on 'cost>50,destroys-data'

exit codes:
  0 ok, 2 a manifest is wrong or can never work, 3 refused (prune guard,
  --max-cost, --fail-on), 4 no such file; with --detailed-exitcode: 0 no change, 1 error, 2 changes
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    add_manifests(made)
    add_output(made, "text", "json", "markdown")
    made.add_argument(
        "--resolve", action="store_true", help="ask the index for the packages of images, by uv"
    )
    made.add_argument(
        "-v", "--verbose", action="store_true", help="also which files of a source do not count"
    )
    made.add_argument("--out", metavar="FILE", help="keep the plan, for `fleetctl apply FILE`")
    made.add_argument(
        "--detailed-exitcode", action="store_true", help="0 no change, 1 error, 2 changes"
    )
    made.add_argument(
        "--max-cost", type=money, metavar="USD",
        help="refuse (3) when it may cost more, or when nobody knows",
    )  # fmt: skip
    made.add_argument("--applyset", default="", metavar="NAME", help="as apply has it")
    made.add_argument(
        "--prune", action="store_true", help="also destroy what left the files of the set"
    )
    made.add_argument("--max-prune", default="", metavar="N|P%", help="as apply has it")
    made.add_argument("--take-over", action="store_true", help="as apply has it")
    add_review(made)
    add_policies(made)
    add_set(made)
    add_allow_missing(made)
    return made


def run(args: Namespace, screen: Screen) -> int:
    try:
        changes = _plan(args, screen)
    except FleetctlError as error:
        if not args.detailed_exitcode:
            raise
        screen.error(str(error), hint=error.hint)
        return ERROR
    return CHANGES if changes and args.detailed_exitcode else NO_CHANGE


def _plan(args: Namespace, screen: Screen) -> bool:
    """Show it, keep it if asked to; whether anything changes. Raises Refused beyond --max-cost."""
    from fleetctl.apply.review.conditions import conditions_of, holding, of_plan

    conditions = conditions_of(args.fail_on)
    if review.wanted(args):
        return _review(args, screen, conditions)
    from fleetctl.apply.policies.told import denials_of, refuse, warnings_of
    from fleetctl.cli.apply.plans.file import save
    from fleetctl.cli.apply.predictions import looked_at, permitted
    from fleetctl.cli.apply.propose import refuse_above, reported
    from fleetctl.manifest.problems import ManifestErrors
    from fleetctl.stores.read.read_only import open_readonly

    documents, place, policies = documents_meant(args, screen), home(), policies_meant(args)
    order = {
        "applyset": args.applyset,
        "prune": args.prune,
        "maxPrune": args.max_prune,
        "takeOver": args.take_over,
        "allowMissing": args.allow_missing,
    }
    order = {name: value for name, value in order.items() if value} | said_namespace(args)
    with open_readonly(place) as stored:
        proposal, found = reported(place, stored, documents, order)
        providers = proposal.accounts.backends
        wrong, doubts = looked_at(stored, proposal.manifests, proposal.changes, providers, order)
        if args.resolve:
            from fleetctl.cli.apply.plans.resolving import resolved

            missing, unknown = resolved(proposal.manifests)
            wrong, doubts = [*wrong, *missing], [*doubts, *unknown]
        changes = permitted(stored, proposal.changes, policies, providers)
        if args.out is not None and not wrong and not denials_of(changes):
            save(args.out, stored, documents, proposal.changes, order)
    _show(found, args, screen, saved="" if wrong else args.out or "")
    for note in dict.fromkeys(proposal.notes if args.verbose else ()):
        screen.talk(safe(note))
    for warning in (*proposal.warnings, *doubts, *warnings_of(changes)):
        screen.warn(safe(warning))
    if wrong:
        raise ManifestErrors(wrong)
    if args.max_cost is not None:
        refuse_above(args.max_cost, found)
    review.refuse(holding(conditions, of_plan(found, changes)))
    refuse(changes, proposal.manifests)
    return found.changes


def _review(args: Namespace, screen: Screen, conditions: Sequence[Condition]) -> bool:
    from fleetctl.apply.review.conditions import holding, of_review
    from fleetctl.apply.review.review import Sort

    found = review.reviewed(args)
    denied = [f"{it.key} is denied by {it.sentence}" for it in found.of(Sort.POLICY)]
    held = holding(conditions, of_review(found))
    review.show(replace(found, failed=(*denied, *held)), args, screen)
    review.refuse(held, denied)
    return bool(found.objects)


def _show(found: Report, args: Namespace, screen: Screen, *, saved: str) -> None:
    if args.output == "json":
        from fleetctl.apply.cost.document import document

        screen.data(json.dumps(document(found), indent=2, ensure_ascii=False))
    elif args.output == "markdown":
        from fleetctl.cli.apply.plans.markdown import comment

        screen.data(comment(found))
    else:
        from fleetctl.cli.apply.plans.screen import show

        show(found, screen, saved=saved)
