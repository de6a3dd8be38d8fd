"""`fleetctl apply`: sends manifests to the controller; --wait follows their objects to the end.

A thin client on purpose: parsing and validation happen in the controller.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.apply.request import (
    CLIENT,
    NONE,
    SAID_OF_DRY_RUNS,
    SERVER,
    collect_documents,
    collect_policies,
    order_of,
    print_outcomes,
    send_apply,
    warn_of,
)
from fleetctl.cli.apply.runs.work_flags import add_sweep_flags, name_flags_in_errors
from fleetctl.cli.command.flags import (
    Parser,
    add_allow_missing,
    add_manifests,
    add_override,
    add_policies,
    add_set,
    duration_s,
    one_of,
    parse_money,
    parse_rollout,
)
from fleetctl.cli.command.verbs import EXIT_INTERRUPTED
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.remote import REMOTE
from fleetctl.common.state_paths import find_state_dir
from fleetctl.daemon.client.socket_client import results_of
from fleetctl.manifest.files.documents import is_address
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.views.objects import as_mapping

if TYPE_CHECKING:
    from fleetctl.apply.policies.judge import LoadedPolicy
    from fleetctl.manifest.files.documents import Document


PAGE = """\
-f FILE|DIR|URL|- [-f ...] [-R] | PLAN [--wait [--logs] [--timeout TIME]]
       [--dry-run] [--prune --applyset NAME] [--yes] [--watch]

Make the world look like these files. Applying them twice changes nothing.
It asks before running work or data is lost; without a terminal it exits with
code 3 and names the flag to add. A saved plan has shown what it stops: it asks nothing.

examples:
  fleetctl apply -f job.yaml
  fleetctl apply -f sweep.yaml --gpu A100 --on modal --parallelism 8
  fleetctl apply -f jobs/ --wait --timeout 2h
  fleetctl apply -f skyrl.yaml --wait --logs
  fleetctl apply -f skyrl.yaml --set template.resources.gpu=A100:4
  fleetctl apply -f jobs/ --values prod.yaml --set gpu=H100:8
  fleetctl apply -R -f fleet/ --prune --applyset nightly
  fleetctl apply -f https://example.com/sweep.yaml
  fleetctl apply -f jobs/ --watch
  generate.py | fleetctl apply -f -

exit codes:
  0 applied (with --wait: all succeeded), 1 an object failed, 2 a manifest is wrong,
  3 refused, 4 no such file, 5 conflict (with --wait: another apply changed the work
  meanwhile), 124 timed out, 130 interrupted (work goes on)
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    add_manifests(made, required=False)
    made.add_argument("saved", nargs="?", metavar="PLAN", help="a file that `plan --out` wrote")
    made.add_argument("--plan", metavar="FILE", help="PLAN as a flag")
    made.add_argument(
        "--wait", action="store_true",
        help="follow the objects until they end, or nothing can get them on",
    )  # fmt: skip
    made.add_argument(
        "--logs", action="store_true", help="with --wait: show what tasks print, as it comes"
    )
    made.add_argument(
        "--wait-for-capacity", action="store_true",
        help="with --wait: also while no machine of the kind is there",
    )  # fmt: skip
    made.add_argument(
        "--watch", action="store_true", help="apply again whenever a file is saved, until Ctrl-C"
    )
    made.add_argument(
        "--timeout", type=duration_s, metavar="TIME", help="with --wait: give up after this"
    )
    made.add_argument(
        "--dry-run", nargs="?", const=CLIENT, default=NONE, type=one_of(CLIENT, SERVER, NONE),
        metavar="client|server",
        help="say what would change, store nothing; `server` asks the controller",
    )  # fmt: skip
    _add_consequences(made)
    add_sweep_flags(made)
    return made


def _add_consequences(made: Parser) -> None:
    """Adds the flags on the effects that an apply may have on stored objects."""
    add_policies(made)
    add_set(made)
    add_allow_missing(made)
    made.add_argument(
        "-y", "--yes", action="store_true", help="do not ask before running work or data is lost"
    )
    made.add_argument(
        "--max-cost", type=parse_money, metavar="USD",
        help="refuse (3) when it may cost more, or when that is not known; see `fleetctl plan`",
    )  # fmt: skip
    made.add_argument(
        "--rollout", type=parse_rollout, metavar="Replace|FinishRunning",
        help="what a changed template does to running tasks, instead of spec.rollout",
    )  # fmt: skip
    made.add_argument(
        "--keep-finished", action="store_true",
        help="finished tasks whose program, image or source changed count as they are",
    )  # fmt: skip
    made.add_argument(
        "--rerun", action="store_true", help="run all again, whatever is known or finished"
    )
    made.add_argument(
        "--applyset", default="", metavar="NAME",
        help="make the objects part of this set, for --prune",
    )  # fmt: skip
    made.add_argument(
        "--prune", action="store_true",
        help="delete objects of the set that are no longer in the files",
    )  # fmt: skip
    made.add_argument(
        "--max-prune", default="", metavar="N|P%",
        help="how many may go; default: half of the set, and always one",
    )  # fmt: skip
    made.add_argument(
        "--take-over", action="store_true", help="with --applyset: also what is in another set"
    )
    add_override(made)


def run(args: Namespace, screen: Screen) -> int:
    saved = args.plan or args.saved or ""
    _check_flags(args, saved)
    if args.watch:
        return _start_watch(args, screen)
    with name_flags_in_errors():
        return _apply_documents(args, saved, screen)


def _apply_documents(
    args: Namespace,
    saved: str,
    screen: Screen,
) -> int:
    _refuse_over_server(args)
    documents, order = _load_desired(args, saved, screen)
    if args.dry_run == CLIENT:
        from fleetctl.cli.apply.dry_run import dry_run

        return dry_run(documents, order, screen, collect_policies(args))

    state_dir = find_state_dir()
    began_at_s = SystemClock().now_s()
    if args.policies:
        _check_policies(collect_policies(args), state_dir, documents, order)
    if args.max_cost is not None:
        _check_cost(args.max_cost, state_dir, documents, order, screen)

    asked = {**order, "tellWork": True} if args.wait else order
    try:
        reply = send_apply(state_dir, documents, asked, screen, piped="-" in args.files)
    except KeyboardInterrupt:
        screen.close_line()
        screen.talk("interrupted before the controller replied; it may be stored all the same")
        screen.hint("`fleetctl diff` of the same files says so")
        return EXIT_INTERRUPTED

    results = results_of(reply)
    print_outcomes(results, reply, screen, dry=SAID_OF_DRY_RUNS[args.dry_run])
    if args.dry_run == SERVER:
        losses = reply.get("losses")
        listed = losses if isinstance(losses, list) else ()
        warn_of(listed, str(reply.get("hint") or ""), order, screen)
        return 0

    keys = [str(result.get("key", "")) for result in results if result.get("outcome") != "pruned"]
    if args.wait:
        return _wait_for_applied(args, reply, keys, state_dir, began_at_s, screen)
    working = _first_working(keys) if screen.talk_is_terminal else ""
    if working:
        screen.hint(f"fleetctl get {working} -w")
    return 0


def _wait_for_applied(
    args: Namespace,
    reply: Mapping[str, object],
    keys: Sequence[str],
    state_dir: Path,
    began_at_s: float,
    screen: Screen,
) -> int:
    """Waits until the applied work ends; returns the exit code. began_at_s: when this apply began,
    since which logs are shown.
    """
    from fleetctl.cli.follow.progress import follow_to_end

    waits_for = []
    if args.allow_missing:
        waits_for.append("missing")
    if args.wait_for_capacity or args.allow_missing:
        waits_for.append("capacity")
    return follow_to_end(
        state_dir,
        keys,
        screen,
        timeout_s=args.timeout,
        waits_for=waits_for,
        logs_since_s=began_at_s if args.logs else None,
        works=as_mapping(reply.get("works")),
    )


def _refuse_over_server(args: Namespace) -> None:
    """Raises UsageError for flags that look into the store of this machine."""
    if REMOTE.get() is None:
        return
    flags = {
        "--policy": bool(args.policies),
        "--dry-run=client": args.dry_run == CLIENT,
    }
    for name, given in flags.items():
        if given:
            raise UsageError(
                f"{name} does not work over a server yet",
                hint="`--dry-run=server`, or `fleetctl plan -o json`",
            )


def _check_flags(args: Namespace, saved: str) -> None:
    """Raises UsageError for flags that do not go together."""
    if args.timeout is not None and not args.wait:
        raise UsageError("--timeout limits --wait, which is missing", hint="add --wait")
    if args.logs and not args.wait:
        raise UsageError("--logs shows what --wait waits for", hint="add --wait")
    if args.plan and args.saved:
        raise UsageError("one plan at a time", hint=f"fleetctl apply {args.saved}")
    if bool(args.files) == bool(saved):
        raise UsageError(
            "`fleetctl apply` takes either -f FILE or a saved plan",
            hint="fleetctl apply -f FILE" if not args.files else "",
        )
    if args.prune and not args.applyset:
        raise UsageError(
            "--prune needs --applyset NAME: only what was applied with that name can go",
            hint="apply the same files once with `--applyset NAME` alone, then prune",
        )


def _check_cost(
    most_usd: float,
    state_dir: Path,
    documents: Sequence[Document],
    order: Mapping[str, object],
    screen: Screen,
) -> None:
    """Plans the apply and raises Refused where it may cost more than most_usd. Runs in this
    process, which takes some tenths of a second, or on the server.
    """
    from fleetctl.apply.local_proposal import estimate_proposal, refuse_above
    from fleetctl.stores.read.read_only import open_readonly

    if (remote := REMOTE.get()) is not None:
        from fleetctl.cli.team.server_plan import request_report

        refuse_above(most_usd, request_report(remote, documents, order, screen)[0])
        return
    with open_readonly(state_dir) as stored:
        refuse_above(most_usd, estimate_proposal(state_dir, stored, documents, order)[1])


def _check_policies(
    policies: Sequence[LoadedPolicy],
    state_dir: Path,
    documents: Sequence[Document],
    order: Mapping[str, object],
) -> None:
    """Judges the changes by the policies of `--policy`; raises PolicyDenied. The controller checks
    the stored policies itself.
    """
    from fleetctl.apply.local_proposal import judge_changes, propose_locally
    from fleetctl.apply.policies.report import raise_if_denied
    from fleetctl.stores.read.read_only import open_readonly

    with open_readonly(state_dir) as stored:
        found = propose_locally(state_dir, stored, documents, order)
        changes = judge_changes(stored, found.changes, policies, found.accounts.backends)
    raise_if_denied(changes, found.manifests)


def _start_watch(args: Namespace, screen: Screen) -> int:
    given = {
        "--wait": args.wait,
        "--max-cost": args.max_cost is not None,
        "--policy": bool(args.policies),
        "--set of a field": any("." in it.partition("=")[0] for it in args.set),
        "--dry-run": args.dry_run != NONE,
        "a saved plan": not args.files,
    }
    for name, beside in given.items():
        if beside:
            raise UsageError(f"--watch and {name} do not go together")
    if "-" in (*args.files, *args.values) or any(map(is_address, args.files)):
        what = "stdin" if "-" in (*args.files, *args.values) else "an address"
        raise UsageError(f"{what} cannot be watched", hint="name files or directories")
    from fleetctl.cli.apply.watch import watch_manifests

    return watch_manifests(args, order_of(args), screen)


def _load_desired(
    args: Namespace,
    saved: str,
    screen: Screen,
) -> tuple[list[Document], dict[str, object]]:
    """Returns the manifests and the options of their apply: from the command line, or from a
    plan."""
    order = order_of(args)
    if saved and (args.set or args.values):
        flag = "--set" if args.set else "--values"
        raise UsageError("a saved plan is applied as it was made", hint=f"make it with `{flag}`")
    if not saved:
        return collect_documents(args, screen), order
    from fleetctl.cli.apply.plans.plan_file import load_plan

    if not args.bound:
        order.pop("namespace", None)  # from the environment: the plan has its own
    changed = sorted(order.keys() - {"yes", "dryRun", "waitForCapacity"})
    if changed:
        raise UsageError(
            "a saved plan is applied as it was made; its own flags say how",
            hint="make the plan again with them",
        )
    plan = load_plan(saved)
    return plan.documents, {**plan.order, **order}


def _first_working(keys: Iterable[str]) -> str:
    """Returns the first key whose kind does work."""
    working = {kind.name.lower() for kind in KINDS.values() if kind.runs}
    return next((key for key in keys if key.partition("/")[0] in working), "")
