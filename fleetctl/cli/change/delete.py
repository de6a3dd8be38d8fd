"""`fleetctl delete`: stops the work of objects, removes them, waits until no part is left."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fleetctl.apply.deletion import deletion_losses
from fleetctl.cli.apply.request import confirm_losses
from fleetctl.cli.command.crash import Refusals
from fleetctl.cli.command.flags import (
    Parser,
    add_labels,
    add_override,
    add_recursive,
    add_variables,
    duration_s,
)
from fleetctl.cli.follow.wait_supervisor import INTERRUPTED, WaitSupervisor
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.choose import kinds_before_labels, target_seen, with_labels
from fleetctl.common.clock import Deadline, RepeatTimer
from fleetctl.common.errors import Refused, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import count_noun, escape_line, format_duration
from fleetctl.daemon.client import spawn
from fleetctl.daemon.client.socket_client import results_of
from fleetctl.views.kinds import Target, kinds_of, parse_target
from fleetctl.views.objects import DELETING, View
from fleetctl.views.store_reading import StoreReading, all_missing, open_reading

TALK_EVERY_S = 5.0
LEFT_SHOWN_MAX = 20
YES = "add --yes to do it all the same"


PAGE = """\
KIND/NAME [KIND/NAME ...] | KIND|all -l LABELS | [KIND] --all
    | -f FILE|DIR|- [-R] [--force] [--no-wait] [--timeout TIME]

Stop the work of objects and remove them with their logs and outputs. What they cost,
came to and said stays in `cost`, `query` and `events --deleted` (90 days by default).
Returns when all of it is confirmed gone. Volumes keep their data unless they say
`deletionPolicy: Delete`; then, and with --all, it asks first, and without a
terminal it refuses. What a schedule made goes with it, and what a Source with `prune`
keeps: it asks where some of that runs, and `--cascade orphan` leaves all of it.

examples:
  fleetctl delete job/chunks
  fleetctl delete -f sweep.yaml
  fleetctl delete jobs -l team=rlm,stage!=prod
  fleetctl delete jobs,sweeps --all --yes
  fleetctl delete job/a sweep/b --no-wait
  fleetctl delete job/a --force
  fleetctl delete schedule/nightly --cascade orphan

exit codes:
  0 gone (with --no-wait: going), 2 wrong usage, 3 refused (add --yes),
  4 no such object, 124 timed out, 130 interrupted (the deletion goes on)

Each of several is reported by itself: one that a Source keeps, or that is not there, stops no
other. What needs a yes is asked for each object before anything is done, and a no keeps
that one.
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("objects", nargs="*", metavar="KIND/NAME", help="objects to delete")
    add_labels(made, "of the kind that is named, or of `all`, those with these labels")
    made.add_argument(
        "--all", action="store_true", help="every object of the kind, or of all, in the namespace"
    )
    made.add_argument(
        "-f", "--filename", action="append", default=[], metavar="FILE", dest="files",
        help="delete the objects that these manifests name",
    )  # fmt: skip
    add_recursive(made)
    add_variables(made)
    made.add_argument(
        "--ignore-not-found", action="store_true", help="a missing object is no error"
    )
    made.add_argument(
        "-y", "--yes", action="store_true", help="do not ask before data goes, or all"
    )
    made.add_argument(
        "--cascade",
        choices=("background", "orphan"),
        default="background",
        help="whether what a schedule made, or a Source keeps, goes with it or stays (orphan)",
    )
    made.add_argument(
        "--force",
        action="store_true",
        help="do not wait for providers that do not answer; says what may be left behind there",
    )
    waits = made.add_mutually_exclusive_group()
    waits.add_argument("--wait", action="store_true", help="return when all is gone (default)")
    waits.add_argument(
        "--no-wait", action="store_true", help="return as soon as the deletion is stored"
    )
    add_override(made)
    made.add_argument("--timeout", type=duration_s, metavar="TIME", help="stop waiting after this")
    return made


def run(args: Namespace, screen: Screen) -> int:
    targets = _parse_targets(args)
    state_dir = find_state_dir()
    with open_reading(state_dir) as reading:
        if args.selector or args.all:
            targets = _select_targets(args, reading)
        report = Refusals(screen)
        found = _find_living(targets, reading, report, ignore=args.ignore_not_found)
        if not found and not report.code:
            if args.selector or args.all:
                screen.talk("no object has such labels" if args.selector else "there is nothing")
            return 0
        _check_consent(found, reading, report, args)
        _request_deletion(
            state_dir,
            found,
            reading,
            report,
            args,
        )
        if args.force:
            _abandon_objects(state_dir, found, screen)
        if args.no_wait:
            for one in found.values():
                screen.data(f"{escape_line(one.key)} is being deleted")
            return report.tell()
        try:
            code = (
                _wait_gone(
                    state_dir,
                    found,
                    reading,
                    screen,
                    timeout_s=args.timeout,
                )
                if found
                else 0
            )
            return report.tell() or code
        except KeyboardInterrupt:
            screen.close_line()
            screen.talk("detached; the deletion goes on")
            return INTERRUPTED


def _select_targets(args: Namespace, reading: StoreReading) -> list[Target]:
    """Returns the living objects; objects in deletion need no new consent. Providers stay: there is
    always one of each.
    """
    kinds = kinds_before_labels(args.objects, verb="delete")
    found = with_labels(kinds, args.selector, args.namespace, reading)
    return [target_seen(seen) for seen in found if kinds or seen.kind.name != "Provider"]


def _parse_targets(args: Namespace) -> list[Target]:
    if args.selector and not args.all and not args.objects:
        raise UsageError(
            "`-l` selects among the objects of a kind, or of `all`",
            hint="fleetctl delete jobs -l team=rlm",
        )
    if args.selector or args.all:
        if args.files:
            raise UsageError(
                "-f names its objects; leave out `-l` and `--all`", hint="fleetctl delete -f FILE"
            )
        if args.all and args.objects and "/" in args.objects[0]:
            raise UsageError("`--all` takes no names", hint="fleetctl delete jobs --all")
        return []
    if len(args.objects) == 1 and "/" not in (word := args.objects[0].lower()):
        if word == "all":
            raise UsageError("`all` names no object", hint="fleetctl delete --all")
        kind = kinds_of(word)[0]  # raises for an unknown kind
        raise UsageError(
            f"`{word}` is a kind; say which {kind.plural}",
            hint=f"`fleetctl delete {kind.name.lower()}/NAME`, or `--all` of them",
        )
    if bool(args.objects) == bool(args.files):
        raise UsageError(
            "`fleetctl delete` takes either objects or -f FILE", hint="fleetctl delete job/NAME"
        )
    if not args.files:
        return list(dict.fromkeys(parse_target(text, args.namespace) for text in args.objects))
    from fleetctl.cli.targets.manifests import named_objects

    return named_objects(args)


def _find_living(
    targets: Sequence[Target],
    reading: StoreReading,
    report: Refusals,
    *,
    ignore: bool,
) -> dict[str, Target]:
    """Returns the living targets by uid; missing ones are reported."""
    seen = {one: reading.find(one) for one in targets}
    gone = [one for one, found in seen.items() if found is None]
    if gone and not ignore:
        error = all_missing(gone, reading)
        report.add(str(error), error.hint, error.exit_code)
    return {found.resource.uid: one for one, found in seen.items() if found is not None}


def _check_consent(
    found: dict[str, Target],
    reading: StoreReading,
    report: Refusals,
    args: Namespace,
) -> None:
    """Removes from `found` the objects whose losses the user did not accept, and notes them: asked
    object by object, before any change. Raises Refused where all objects would be deleted.
    """
    screen = report.screen
    may_ask = "-" not in args.files
    if args.yes:
        return
    if args.all and not args.selector:
        names = [one.key for one in found.values()]
        text = f"{count_noun(len(names), 'object')} would be deleted: {', '.join(names)}"
        if not may_ask or not confirm_losses([text], screen):
            raise Refused(text, hint=YES)
    for uid, one in list(found.items()):
        losses = deletion_losses(reading.by_uid(uid), reading, orphans=args.cascade == "orphan")
        if losses and not (may_ask and confirm_losses(losses, screen, of=one.key)):
            kept = f"; {one.key} stays" if len(found) > 1 else ""
            report.add("\nerror: ".join(losses) + kept, YES, Refused.exit_code)
            del found[uid]


def _request_deletion(
    state_dir: Path,
    found: dict[str, Target],
    reading: StoreReading,
    report: Refusals,
    args: Namespace,
) -> None:
    """Marks the objects as deleted; ones in deletion are only waited for. Prints the objects that
    wait for them, and removes refused ones from `found`.
    """
    views = [(one, reading.by_uid(uid)) for uid, one in found.items()]
    keys = [one.key for one, seen in views if seen is not None and seen.phase != DELETING]
    if keys:
        request = {"verb": "delete", "keys": keys, "cascade": args.cascade, "each": True}
        if args.override:
            request["override"] = True
        reply = spawn.require_reply(state_dir, request)
        for result in results_of(reply):
            if not report.take(result) and (message := result.get("message")):
                report.screen.warn(escape_line(f"{result.get('key')} is deleted, and {message}"))
        for uid, one in list(found.items()):
            if one.key in report.keys:
                del found[uid]


def _abandon_objects(
    state_dir: Path,
    found: dict[str, Target],
    screen: Screen,
) -> None:
    """Makes the store forget the objects, confirmed gone or not, and prints the parts that may be
    left."""
    reply = spawn.require_reply(state_dir, {"verb": "abandon", "uids": list(found)})
    results = reply.get("results")
    for one in results if isinstance(results, list) else []:
        left = [str(it) for it in one["left"]]
        for it in left[:LEFT_SHOWN_MAX]:
            screen.talk(f"{escape_line(one['key'])} may leave behind: {escape_line(it)}")
        if len(left) > LEFT_SHOWN_MAX:
            screen.talk(
                f"{escape_line(one['key'])} may leave behind {len(left) - LEFT_SHOWN_MAX} more"
            )
        if left:
            screen.hint(
                "the rest is ended as soon as its provider answers; `fleetctl orphans` lists it"
            )


def _wait_gone(
    state_dir: Path,
    found: dict[str, Target],
    reading: StoreReading,
    screen: Screen,
    *,
    timeout_s: float | None,
) -> int:
    deadline = Deadline(timeout_s)
    waiting = _DeletionProgress(screen)
    with WaitSupervisor(state_dir, screen) as supervisor:
        while True:
            for uid, one in list(found.items()):
                seen = reading.by_uid(uid)
                if seen is None:
                    screen.data(f"{escape_line(one.key)} deleted")
                    screen.flush()
                    del found[uid]
                else:
                    waiting.show(seen)
            if not found:
                return 0
            if deadline.passed:
                names = ", ".join(escape_line(one.key) for one in found.values())
                spent = format_duration(timeout_s or 0.0)
                screen.error(f"timed out after {spent}: {names} still there; the deletion goes on")
                return 124
            supervisor.check()
            reading.wait_for_change(deadline)


class _DeletionProgress:
    """Prints the obstacles of a deletion: redrawn on a terminal, otherwise once it takes long."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._turn = RepeatTimer(TALK_EVERY_S, first_s=TALK_EVERY_S)
        self._said = ""

    def show(self, seen: View) -> None:
        why = seen.waiting_on[0] if seen.waiting_on else "stopping"
        line = f"{escape_line(seen.key)}: {escape_line(why)}"
        if self._screen.talk_is_terminal:
            self._screen.redraw(line)
        elif line != self._said and self._turn.due():
            self._screen.talk(line)
            self._said = line
