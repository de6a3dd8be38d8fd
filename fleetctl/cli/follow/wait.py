"""`fleetctl wait`: blocks until a condition is met, or can no longer be met."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from fleetctl.cli.command.flags import Parser, duration_s
from fleetctl.cli.follow.wait_supervisor import WaitSupervisor, report_detached
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.choose import add_labels_and_files, choose_targets
from fleetctl.common.clock import Deadline, RepeatTimer
from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line, format_duration
from fleetctl.views.goals import (
    GoalOutcome,
    GoalStatus,
    WaitGoal,
    check_goal,
    format_tally,
    parse_goal,
)
from fleetctl.views.kinds import Target, format_commands
from fleetctl.views.objects import View
from fleetctl.views.store_reading import StoreReading, all_missing, open_reading

# To a log file a line a minute is enough; a terminal's line is redrawn at every change.
TALK_EVERY_S = 60.0


PAGE = """\
KIND/NAME [KIND/NAME ...] | [KIND] -l LABELS | -f FILE|DIR|- [-R]
    --for=GOAL [--timeout TIME]

Block until a goal is met by all the objects. Ends at once, with 1, when one of them
can no longer meet it. With -l and -f those that do work are meant; what gets such
labels later is not waited for.

goals:
  complete | succeeded  the end, and a good one
  failed                the end, and a bad one
  finished              the end, either way
  first-result          one task has succeeded
  delete                gone
  condition=NAME        a condition of the status is True (or NAME=VALUE)

examples:
  fleetctl wait job/chunks --for=succeeded --timeout 1h
  fleetctl wait sweep/lr --for=first-result
  fleetctl wait -f jobs/ --timeout 2h
  fleetctl wait jobs -l team=rlm --for=finished
  fleetctl wait job/chunks --for=delete

exit codes:
  0 met, 1 can no longer be met, 2 wrong usage, 4 no such object, 124 timed out,
  130 interrupted (work goes on)
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.set_defaults(verb=verb)
    made.add_argument("objects", nargs="*", metavar="KIND/NAME", help="objects to watch")
    add_labels_and_files(made, "watch")
    made.add_argument(
        "--for",
        dest="goal",
        default="complete",
        metavar="GOAL",
        help="see above (default %(default)s)",
    )
    made.add_argument("--timeout", type=duration_s, metavar="TIME", help="give up after this")
    return made


def run(args: Namespace, screen: Screen) -> int:
    wanted = parse_goal(args.goal)
    lasting = wanted.word in ("delete", "condition")
    with open_reading(find_state_dir()) as reading:
        targets = choose_targets(args, reading, working=not lasting)
    for one in targets:
        if not one.kind.runs and not lasting:
            raise UsageError(
                f"a {one.kind.name} never ends",
                hint="wait for its deletion or for a condition=NAME",
            )
    try:
        return _wait_for_goal(targets, wanted, screen, timeout_s=args.timeout)
    except KeyboardInterrupt:
        keys = [one.key for one in targets]
        return report_detached(keys, format_commands("wait", keys), screen)


def _wait_for_goal(
    targets: Sequence[Target],
    wanted: WaitGoal,
    screen: Screen,
    *,
    timeout_s: float | None,
) -> int:
    state_dir = find_state_dir()
    deadline = Deadline(timeout_s)
    with open_reading(state_dir) as reading:
        pending = _resolve_targets(targets, wanted, reading, screen)
        with WaitSupervisor(state_dir, screen) as supervisor:
            progress = _WaitProgress(screen)
            while True:
                for uid, one in list(pending.items()):
                    seen = reading.by_uid(uid)
                    verdict = check_goal(wanted, seen)
                    if verdict.outcome is GoalOutcome.IMPOSSIBLE:
                        _give_up(one, wanted, verdict, screen, there=seen is not None)
                        return 1
                    if verdict.outcome is GoalOutcome.MET:
                        _report_met(one, wanted, verdict, screen)
                        del pending[uid]
                    elif seen is not None:
                        progress.show(seen)
                if not pending:
                    return 0
                if deadline.passed:
                    return _timed_out(list(pending.values()), wanted, timeout_s or 0.0, screen)
                supervisor.check()
                reading.wait_for_change(deadline)


def _resolve_targets(
    targets: Sequence[Target],
    wanted: WaitGoal,
    reading: StoreReading,
    screen: Screen,
) -> dict[str, Target]:
    """Returns the targets by uid: a new object of the same name does not count."""
    seen = {one: reading.find(one) for one in targets}
    gone = [one for one, found in seen.items() if found is None]
    if gone and wanted.word != "delete":
        raise all_missing(gone, reading)
    for one in gone:
        _report_met(one, wanted, GoalStatus(GoalOutcome.MET, "gone"), screen)
    return {found.resource.uid: one for one, found in seen.items() if found is not None}


class _WaitProgress:
    """Prints progress: redrawn on a terminal, a line a minute otherwise."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._turn = RepeatTimer(TALK_EVERY_S, first_s=TALK_EVERY_S)

    def show(self, seen: View) -> None:
        line = f"{escape_line(seen.key)}: {seen.phase}, {format_tally(seen)}"
        if self._screen.talk_is_terminal:
            self._screen.redraw(line)
        elif self._turn.due():
            self._screen.talk(line)


def _report_met(
    one: Target,
    wanted: WaitGoal,
    reply: GoalStatus,
    screen: Screen,
) -> None:
    because = f" ({escape_line(reply.because)})" if reply.because else ""
    screen.data(f"{escape_line(one.key)} condition met: {escape_line(str(wanted))}{because}")


def _give_up(
    one: Target,
    wanted: WaitGoal,
    reply: GoalStatus,
    screen: Screen,
    *,
    there: bool,
) -> None:
    verb = {"failed": "fail", "complete": "succeed", "succeeded": "succeed", "finished": "finish"}
    sentence = verb.get(wanted.word, f"meet `{escape_line(str(wanted))}`")
    screen.error(
        f"{escape_line(one.key)} can no longer {sentence}: {escape_line(reply.because)}",
        hint=f"fleetctl describe {escape_line(one.key)}" if there else "",
    )


def _timed_out(
    pending: Sequence[Target],
    wanted: WaitGoal,
    timeout_s: float,
    screen: Screen,
) -> int:
    names = ", ".join(escape_line(one.key) for one in pending)
    screen.error(
        f"timed out after {format_duration(timeout_s)}: {names} has not met "
        f"`{escape_line(str(wanted))}`",
        hint=f"fleetctl describe {escape_line(pending[0].key)}",
    )
    return 124
