"""`fleetctl plan`: shows the changes of an apply, where its work would run, and its cost; with
--diff-from those of a pull request.

Offline: needs no controller, no account and no network, and changes nothing.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.apply.request import collect_documents, collect_policies
from fleetctl.cli.apply.runs.work_flags import add_sweep_flags, name_flags_in_errors
from fleetctl.cli.command.flags import (
    Parser,
    add_allow_missing,
    add_manifests,
    add_output,
    add_policies,
    add_set,
    parse_money,
    request_namespace,
)
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import FleetctlError, Refused, UsageError
from fleetctl.common.remote import REMOTE
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line

if TYPE_CHECKING:
    from fleetctl.apply.plan.plan_report import PlanReport
    from fleetctl.common.remote import RemoteFleet
    from fleetctl.manifest.files.documents import Document

NO_CHANGE, ERROR, CHANGES = 0, 1, 2
HEAD = "HEAD"


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
        "--max-cost", type=parse_money, metavar="USD",
        help="refuse (3) when it may cost more, or when that is not known",
    )  # fmt: skip
    made.add_argument("--applyset", default="", metavar="NAME", help="as apply has it")
    made.add_argument(
        "--prune", action="store_true", help="also destroy what left the files of the set"
    )
    made.add_argument("--max-prune", default="", metavar="N|P%", help="as apply has it")
    made.add_argument("--take-over", action="store_true", help="as apply has it")
    _add_comparison(made)
    add_policies(made)
    add_set(made)
    add_allow_missing(made)
    add_sweep_flags(made)
    return made


def _add_comparison(parser: Parser) -> None:
    parser.add_argument(
        "--diff-from", default="", metavar="REV",
        help="compare two revisions of this git repository, from where REV was left",
    )  # fmt: skip
    parser.add_argument(
        "--diff-to", default="", metavar="REV", help="... to this one (default HEAD)"
    )
    parser.add_argument(
        "--live", action="store_true",
        help="with --diff-from: also what runs here now, and what is left of budgets",
    )  # fmt: skip
    parser.add_argument(
        "--fail-on", action="append", default=[], metavar="CONDITIONS",
        help="exit with code 3 where one holds, such as cost>50,destroys-data,reruns>10",
    )  # fmt: skip


def run(args: Namespace, screen: Screen) -> int:
    try:
        with name_flags_in_errors():
            changes = _make_plan(args, screen)
    except FleetctlError as error:
        if not args.detailed_exitcode:
            raise
        screen.report(error)
        return ERROR
    if changes and args.detailed_exitcode:
        return CHANGES
    return NO_CHANGE


def _make_plan(args: Namespace, screen: Screen) -> bool:
    """Shows the plan, and writes it to a file on request; true where it has changes. Raises Refused
    beyond --max-cost, and for conditions of --fail-on that are met."""
    from fleetctl.apply.plan.plan_report import conditions_of, list_met_conditions

    conditions = conditions_of(args.fail_on)
    if _wants_comparison(args):
        found = _compare_revisions(args)
        held = list_met_conditions(conditions, found)
        denied = _show_report(found, held, args, screen)
        _refuse_met(held, denied)
        return bool(found.changes)

    from fleetctl.apply.local_proposal import plan_locally, refuse_above
    from fleetctl.apply.policies.report import refuse_problems
    from fleetctl.cli.apply.plans.plan_file import save_plan
    from fleetctl.common.finding import Severity
    from fleetctl.stores.read.read_only import open_readonly

    remote = REMOTE.get()
    if remote is not None:
        return _plan_over_server(args, remote, screen)
    documents = collect_documents(args, screen)
    state_dir = find_state_dir()
    policies = collect_policies(args)
    order = _order_of(args)

    with open_readonly(state_dir) as stored:
        proposal, found, _, wrong = plan_locally(state_dir, stored, documents, order, policies)
        if args.resolve:
            from fleetctl.cli.apply.plans.package_resolution import resolve_packages

            missing, unknown = resolve_packages(proposal.manifests)
            wrong = [*wrong, *missing]
            found = replace(found, warnings=(*found.warnings, *unknown))
        if args.out is not None and not wrong:
            save_plan(args.out, stored, documents, proposal.changes, order)

    held = list_met_conditions(conditions, found)
    notes = proposal.notes if args.verbose else ()
    _show_report(found, held, args, screen, notes=notes, saved="" if wrong else args.out or "")
    if any(it.severity is not Severity.DENIED for it in wrong):
        refuse_problems(wrong, proposal.manifests)
    if args.max_cost is not None:
        refuse_above(args.max_cost, found)
    _refuse_met(held)
    refuse_problems(wrong, proposal.manifests)
    return bool(found.changes)


def _plan_over_server(
    args: Namespace,
    remote: RemoteFleet,
    screen: Screen,
) -> bool:
    """Prints the plan that a server makes, as `_make_plan` prints one of this machine."""
    from fleetctl.apply.local_proposal import refuse_above
    from fleetctl.apply.plan.plan_report import conditions_of, list_met_conditions
    from fleetctl.cli.team.server_plan import request_report
    from fleetctl.daemon.client.socket_client import raise_refusal

    if args.out or args.policies or args.resolve:
        raise UsageError(
            "over a server there is no --out, --policy and --resolve",
            hint="the policies that are stored there hold; `fleetctl plan -f FILE` shows the plan",
        )
    documents = collect_documents(args, screen)
    found, reply = request_report(remote, documents, _order_of(args), screen)
    held = list_met_conditions(conditions_of(args.fail_on), found)
    _show_report(found, held, args, screen)
    if not reply.get("ok"):
        raise_refusal(reply)
    if args.max_cost is not None:
        refuse_above(args.max_cost, found)
    _refuse_met(held)
    return bool(found.changes)


def _order_of(args: Namespace) -> dict[str, object]:
    order = {
        "applyset": args.applyset,
        "prune": args.prune,
        "maxPrune": args.max_prune,
        "takeOver": args.take_over,
        "allowMissing": args.allow_missing,
    }
    return {name: value for name, value in order.items() if value} | request_namespace(args)


def _show_report(
    found: PlanReport,
    held: Sequence[str],
    args: Namespace,
    screen: Screen,
    *,
    notes: Sequence[str] = (),
    saved: str = "",
) -> list[str]:
    """Prints the report, and its warnings on stderr. held: met conditions. Returns the denials of
    policies."""
    from fleetctl.apply.plan.plan_report import RiskType

    denied = [f"{it.key} is denied by {it.sentence}" for it in found.risks_of(RiskType.POLICY)]
    found = replace(found, failed=(*denied, *held))
    if args.output == "json":
        from fleetctl.apply.plan.document import render_plan

        screen.data(json.dumps(render_plan(found), indent=2, ensure_ascii=False))
    elif args.output == "markdown":
        from fleetctl.cli.apply.plans.report_screen import render_plan_comment

        screen.data(render_plan_comment(found))
    else:
        from fleetctl.cli.apply.plans.report_screen import print_plan

        print_plan(found, screen, saved=saved)
    for note in dict.fromkeys(notes):
        screen.talk(escape_line(note))
    for warning in found.warnings:
        screen.warn(escape_line(warning))
    return denied


def _wants_comparison(args: Namespace) -> bool:
    """Returns true with --diff-from. Raises UsageError for flags that do not go together."""
    if not args.diff_from:
        if args.diff_to or args.live:
            flag = "--diff-to" if args.diff_to else "--live"
            raise UsageError(f"{flag} needs --diff-from", hint="for instance --diff-from main")
        return False
    beside = {"--out": args.out, "--prune": args.prune, "--applyset": args.applyset}
    for flag, value in beside.items():
        if value:
            raise UsageError(
                f"{flag} and --diff-from do not go together",
                hint="two revisions are compared; what is stored here is left alone",
            )
    return True


def _compare_revisions(args: Namespace) -> PlanReport:
    from fleetctl.apply.plan.compare import ReviewRequest, compare_revisions
    from fleetctl.apply.request import namespace_of

    def settle(documents: list[Document], lenient: bool) -> list[Document]:
        return _apply_settings(documents, args.set, lenient=lenient)

    return compare_revisions(
        ReviewRequest(
            directory=Path.cwd(),
            before=args.diff_from,
            after=args.diff_to or HEAD,
            files=tuple(args.files),
            values=tuple(args.values),
            recursive=args.recursive,
            namespace=namespace_of(request_namespace(args)),
            settle=settle,
            policies=tuple(args.policies),
            home=find_state_dir() if args.live else None,
        )
    )


def _apply_settings(
    documents: list[Document],
    settings: Sequence[str],
    *,
    lenient: bool,
) -> list[Document]:
    """Applies `--set`. lenient: without names that these documents do not know, for an older
    revision."""
    if not settings or not documents:
        return documents
    from fleetctl.cli.apply.overrides import with_settings

    if not lenient:
        return with_settings(documents, settings)
    known = []
    for setting in settings:
        try:
            with_settings(documents, [setting])
        except UsageError:
            continue
        known.append(setting)
    if known:
        return with_settings(documents, known)
    return documents


def _refuse_met(held: Sequence[str], denied: Sequence[str] = ()) -> None:
    """Raises Refused with the denials of policies and the conditions that are met."""
    from fleetctl.specs.values.exempt import EXEMPT

    found = [*denied, *(f"--fail-on {it}" for it in held)]
    if found:
        raise Refused(
            "\nerror: ".join(map(escape_line, found)),
            hint="nothing was changed; remove the condition where this is meant"
            if held
            else f"the annotation {EXEMPT} makes an exception for a while",
        )
