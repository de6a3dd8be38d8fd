"""`fleetctl get`: lists of objects, tasks and attempts. Reads the store alone."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from copy import copy

from fleetctl.cli.command.flags import (
    Parser,
    add_all_namespaces,
    add_labels,
    add_output,
    add_picking,
)
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.show.lists.objects import (
    HINT_CHARS_MAX,
    ListRequest,
    build_table,
    filter_objects,
    format_name,
    parse_list_request,
    select_objects,
)
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line, shorten_text
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.views.kinds import (
    ARTIFACTS,
    ATTEMPTS,
    CHECKPOINTS,
    INTERPRETERS,
    METRICS,
    NAMESPACES,
    NOTICES,
    TASKS,
)
from fleetctl.views.objects import (
    DELETING,
    PARTS,
    PENDING,
    RUNNING,
    View,
    build_document,
    explain_status,
    is_standing_still,
)
from fleetctl.views.selectors import label_keys
from fleetctl.views.store_reading import StoreReading, all_missing, open_reading

FORMATS = ("table", "wide", "name", "json", "yaml", "csv", "jsonpath=", "custom-columns=")


PAGE = """\
KIND[,KIND] [NAME ...] | KIND/NAME ... | all | namespaces | interpreters
    | notices [KIND/NAME ...]
    | tasks|attempts KIND/NAME [--queued] | metrics KIND/NAME | checkpoints tr/NAME
    | artifacts KIND/NAME

List objects, newest last; or the tasks, attempts and checkpoints of one object, the
files that are kept of its tasks, or how the metrics stand that it reported; or the
sandboxes of interpreters, which programs of this machine made; or notices, delivered
and not.

examples:
  fleetctl get jobs
  fleetctl get jobs,sweeps -L team --sort-by duration
  fleetctl get sweep/lr -o json
  fleetctl get tasks job/chunks -o wide
  fleetctl get tasks job/chunks --queued --no-headers
  fleetctl get metrics tr/sft
  fleetctl get checkpoints tr/train
  fleetctl get artifacts job/chunks
  fleetctl get all -l team=rlm -w
  fleetctl get jobs --field-selector status=Failed --sort-by .status.cost.actual
  fleetctl get all -A
  fleetctl get jobs -o jsonpath='{.items[*].metadata.name}'

exit codes:
  0 ok, 2 wrong usage, 4 no such object
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("words", nargs="*", metavar="KIND", help="kinds or objects to list")
    add_output(made, *FORMATS)
    made.add_argument(
        "-w",
        "--watch",
        action="store_true",
        help="go on: a table that is redrawn on a terminal, else a line for every change",
    )
    add_labels(made, "such as team=rlm,stage!=test")
    made.add_argument(
        "-L",
        "--label-columns",
        type=label_keys,
        action="extend",
        default=[],
        metavar="LABEL",
        help="a column for this label; several with commas",
    )
    made.add_argument("--show-labels", action="store_true", help="a column with all labels")
    made.add_argument("--no-headers", action="store_true", help="rows alone, without their titles")
    made.add_argument(
        "--queued", action="store_true", help="of tasks also those that have not begun"
    )
    add_all_namespaces(made)
    add_picking(made)
    return made


def run(args: Namespace, screen: Screen) -> int:
    if not args.words:
        raise UsageError(
            "`fleetctl get` does not say what to list",
            hint="`fleetctl get all`, or a kind: jobs, sweeps, trainingruns, volumes;"
            " `fleetctl api-resources` lists them",
        )

    with open_reading(find_state_dir()) as reading:
        exit_code = _get_no_objects(args.words[0].lower(), args, reading, screen)
        if exit_code is not None:
            return exit_code
        wanted = parse_list_request(args)
        if args.watch:
            from fleetctl.cli.show.lists.watch import watch_objects

            return watch_objects(wanted, args, reading, screen)

        lost = [one for one in wanted.targets if reading.find(one) is None]
        there = copy(wanted)
        if len(lost) < len(wanted.targets):
            there.targets = [one for one in wanted.targets if one not in lost]
        specs = "=" in args.output or args.output in ("json", "yaml")
        found = filter_objects(select_objects(there, args.selector, reading, specs=specs), args)
        _show_objects(found, wanted, args.output, screen)
        if args.output in ("table", "wide"):
            warn_if_stopped(found, screen)
        if lost:
            raise all_missing(lost, reading)
    return 0


def _get_no_objects(
    word: str, args: Namespace, reading: StoreReading, screen: Screen
) -> int | None:
    """Lists what is no object of a kind; returns the exit code, or None for another word."""
    if word in TASKS or word in ATTEMPTS:
        from fleetctl.cli.show.lists.tasks import get_tasks

        return get_tasks(args, reading, screen, attempts=word in ATTEMPTS)
    if word in CHECKPOINTS:
        from fleetctl.cli.show.get_reports import get_checkpoints

        return get_checkpoints(args, reading, screen)
    if word in ARTIFACTS:
        from fleetctl.cli.output.artifacts import get_artifacts

        return get_artifacts(args, reading, screen)
    if word in METRICS:
        from fleetctl.cli.show.get_reports import get_metrics

        return get_metrics(args, reading, screen)
    if args.queued:
        raise UsageError("`--queued` lists tasks", hint="fleetctl get tasks job/NAME --queued")
    if word in INTERPRETERS:
        from fleetctl.cli.show.lists.store_lists import get_interpreters

        return get_interpreters(args, screen)
    if word in NOTICES:
        from fleetctl.cli.show.lists.store_lists import get_notices

        return get_notices(args, reading, screen)
    if word in NAMESPACES:
        from fleetctl.cli.show.lists.store_lists import get_namespaces

        return get_namespaces(args, reading, screen)
    return None


def _show_objects(
    found: list[View],
    wanted: ListRequest,
    output: str,
    screen: Screen,
) -> None:
    now_s = SystemClock().now_s()
    if output == "name":
        for view in found:
            screen.data(format_name(view))
    elif output in ("json", "yaml"):
        from fleetctl.cli.output.documents import write_all, write_document

        documents = [build_document(view, now_s) for view in found]
        if wanted.one and documents:
            write_document(documents[0], output, screen)
        elif documents or output == "json":
            write_all(documents, output, screen)
    elif "=" in output or output == "csv":
        from fleetctl.cli.output.documents import OBJECT_CSV, make_writer

        write_them = make_writer(output, OBJECT_CSV, screen, headers=wanted.headers)
        parts = ("metadata", "status") if output == "csv" else PARTS
        shown = (build_document(view, now_s, parts=parts) for view in found)
        write_them(shown, one=wanted.one and bool(found))
    elif not found:
        what = ", ".join(kind.plural for kind in wanted.kinds) or "objects"
        where = "" if wanted.namespace in (None, DEFAULT_NAMESPACE) else f" in {wanted.namespace}"
        screen.talk(f"no {what}{where}")
    else:
        screen.table(*build_table(found, wanted, wide=output == "wide"))
        if any(view.kind.runs and not view.over for view in found):
            _say_standstill(screen)
        if screen.talk_is_terminal:
            _hint_at_stuck(found, screen)


def _say_standstill(screen: Screen) -> None:
    """Prints the cause of a standstill, which statuses cannot show where they cannot be written."""
    from fleetctl.daemon.client.lock_holder import find_stall_reason

    still = find_stall_reason(find_state_dir())
    if still is not None:
        screen.warn(still.why)
        screen.hint(still.hint)


def warn_if_stopped(found: Sequence[View], screen: Screen) -> None:
    """Warns without a controller: a table is as old as its controller, and would otherwise not show
    it."""
    waits = any(
        view.phase in (PENDING, RUNNING, DELETING) and (view.kind.runs or view.phase == DELETING)
        for view in found
    )
    if not waits:
        return
    from fleetctl.daemon.client.spawn import find_holder_pid

    if find_holder_pid(find_state_dir()) is None:
        screen.warn("no controller runs, so nothing moves on until `fleetctl up --detach`")


def _hint_at_stuck(found: list[View], screen: Screen) -> None:
    """Prints one line for the newest object that makes no progress."""
    for view in reversed(found):
        if is_standing_still(view):
            because = escape_line(shorten_text(explain_status(view), HINT_CHARS_MAX))
            verb = "failed" if view.phase == "Failed" else "waits"
            name = escape_line(view.resource.name)
            key = escape_line(view.key)
            screen.hint(f"{name} {verb}: {because} (fleetctl describe {key})")
            return
