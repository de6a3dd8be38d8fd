"""`fleetctl get`: lists of objects, tasks and attempts. Reads the store alone."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from fleetctl.cli.columns import NAMESPACE, columns, filled, labels_asked
from fleetctl.cli.flags import (
    Parser,
    Term,
    add_all_namespaces,
    add_output,
    add_picking,
    label_keys,
    selector,
)
from fleetctl.cli.kinds import ATTEMPTS, NAMESPACES, TASKS, Target, kinds_of, target, target_of
from fleetctl.cli.reading import Reading, must_find_all, open_reading
from fleetctl.cli.render import Screen
from fleetctl.cli.text import safe, shorten
from fleetctl.cli.view import (
    DELETING,
    PARTS,
    PENDING,
    RUNNING,
    View,
    document,
    stands_still,
    why,
)
from fleetctl.clock import SystemClock
from fleetctl.errors import UsageError
from fleetctl.home import home
from specs.kinds import Kind
from specs.namespaces import DEFAULT_NAMESPACE, object_key

FORMATS = ("table", "wide", "name", "json", "yaml", "csv", "jsonpath=", "custom-columns=")
HINT_CHARS_MAX = 100


def parser(verb: str) -> Parser:
    made = Parser(
        verb=verb,
        usage="KIND[,KIND] [NAME ...] | KIND/NAME ... | all | namespaces\n"
        "    | tasks|attempts KIND/NAME [--queued]",
        summary="List objects, newest last; or the tasks and attempts of one object.",
        examples=(
            "fleetctl get jobs",
            "fleetctl get jobs,sweeps -L team --sort-by duration",
            "fleetctl get sweep/lr -o json",
            "fleetctl get tasks job/chunks -o wide",
            "fleetctl get tasks job/chunks --queued --no-headers",
            "fleetctl get all -l team=rlm -w",
            "fleetctl get jobs --field-selector status=Failed --sort-by .status.cost.actual",
            "fleetctl get all -A",
            "fleetctl get jobs -o jsonpath='{.items[*].metadata.name}'",
        ),
        codes="0 ok, 2 wrong usage, 4 no such object",
    )
    made.add_argument("words", nargs="+", metavar="KIND", help="what to list")
    add_output(made, *FORMATS)
    made.add_argument(
        "-w",
        "--watch",
        action="store_true",
        help="go on: a table that is redrawn on a terminal, else a line for every change",
    )
    made.add_argument(
        "-l",
        "--selector",
        type=selector,
        default=(),
        metavar="LABELS",
        help="such as team=rlm,stage!=test",
    )
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
    first = args.words[0].lower()
    with open_reading(home()) as reading:
        if first in TASKS or first in ATTEMPTS:
            from fleetctl.cli.gettasks import get_tasks

            return get_tasks(args, reading, screen, attempts=first in ATTEMPTS)
        if args.queued:
            raise UsageError("`--queued` lists tasks", hint="fleetctl get tasks job/NAME --queued")
        if first in NAMESPACES:
            from fleetctl.cli.getnamespaces import get_namespaces

            return get_namespaces(args, reading, screen)
        wanted = _wanted(args)
        if args.watch:
            from fleetctl.cli.getwatch import watch

            return watch(wanted, args, reading, screen)
        specs = "=" in args.output or args.output in ("json", "yaml")
        found = pick(select(wanted, args.selector, reading, specs=specs), args)
        _show(found, wanted, args.output, screen)
        if args.output in ("table", "wide"):
            warn_if_stopped(found, screen)
    return 0


class Wanted:
    """What the words ask for: every object of `kinds` (none = of all kinds) in `namespace` (None =
    in all), or the `targets`; and how a table of them looks.
    """

    __slots__ = ("headers", "kinds", "labels", "namespace", "show_labels", "targets")

    def __init__(
        self,
        kinds: Sequence[Kind],
        targets: Sequence[Target],
        namespace: str | None = DEFAULT_NAMESPACE,
        *,
        labels: Sequence[str] = (),
        show_labels: bool = False,
        headers: bool = True,
    ) -> None:
        self.kinds = kinds
        self.targets = targets
        self.namespace = namespace
        self.labels = labels
        self.show_labels = show_labels
        self.headers = headers

    @property
    def kind(self) -> Kind | None:
        """The only one that is asked for; None for a mixture."""
        return self.kinds[0] if len(self.kinds) == 1 else None

    @property
    def one(self) -> bool:
        return len(self.targets) == 1

    def views(self, reading: Reading, *, specs: bool = False) -> list[View]:
        """All of the kinds and the namespace, oldest first."""
        found = reading.views(self.kind, specs=specs, namespace=self.namespace)
        return [it for it in found if it.kind in self.kinds] if len(self.kinds) > 1 else found


def _wanted(args: Namespace) -> Wanted:
    words, namespace = args.words, None if args.everywhere else args.namespace
    kinds, targets = _meant(words, namespace)
    return Wanted(
        kinds,
        targets,
        namespace,
        labels=args.label_columns,
        show_labels=args.show_labels,
        headers=not args.no_headers,
    )


def _meant(words: Sequence[str], namespace: str | None) -> tuple[list[Kind], list[Target]]:
    """The kinds and the objects of the words; without objects all of the kinds."""
    if namespace is None and ("/" in words[0] or len(words) > 1):
        raise UsageError("a name is looked for in one namespace", hint="say which with -n")
    within = namespace or DEFAULT_NAMESPACE
    if "/" in words[0]:
        targets = [target(word, within) for word in words]
        return list(dict.fromkeys(found.kind for found in targets)), targets
    if words[0].lower() == "all":
        if len(words) > 1:
            raise UsageError(
                f"`all` takes no names, `{words[1]}` is one", hint="`fleetctl get KIND NAME`"
            )
        return [], []
    kinds = kinds_of(words[0])
    return kinds, [target_of(kind, name, within) for kind in kinds for name in words[1:]]


def select(
    wanted: Wanted, terms: Sequence[Term], reading: Reading, *, specs: bool = False
) -> list[View]:
    """The objects asked for, oldest first. Raises NotFound for a name that is not there.

    specs: all of them will be asked for, and are read at once.
    """
    if not wanted.targets:
        seen = wanted.views(reading, specs=specs)
    else:
        seen = must_find_all(wanted.targets, reading)
    return [view for view in seen if matches(view.resource.labels, terms)] if terms else seen


def pick(found: list[View], args: Namespace) -> list[View]:
    """Those that `--field-selector` takes, in the order of `--sort-by`."""
    if not args.fields and not args.sort_by:
        return found
    from fleetctl.cli.picking import picked

    now_s = SystemClock().now_s()
    return picked(
        found,
        lambda view, parts: document(view, now_s, parts=parts),
        fields=args.fields,
        sort_by=args.sort_by,
    )


def matches(labels: dict[str, str], terms: Sequence[Term]) -> bool:
    """As kubectl has it: what lacks the label is also not one of a set."""
    for term in terms:
        value = labels.get(term.key)
        holds = {
            "in": value in term.values,
            "notin": value not in term.values,
            "exists": value is not None,
            "absent": value is None,
        }
        if not holds[term.op]:
            return False
    return True


def _show(found: list[View], wanted: Wanted, output: str, screen: Screen) -> None:
    now_s = SystemClock().now_s()
    if output == "name":
        for view in found:
            screen.data(named(view))
    elif output in ("json", "yaml"):
        from fleetctl.cli.documents import write, write_all

        documents = [document(view, now_s) for view in found]
        if wanted.one and documents:
            write(documents[0], output, screen)
        elif documents or output == "json":
            write_all(documents, output, screen)
    elif "=" in output or output == "csv":
        from fleetctl.cli.templated import OBJECT_CSV, writer

        write_them = writer(output, OBJECT_CSV, screen, headers=wanted.headers)
        parts = ("metadata", "status") if output == "csv" else PARTS
        shown = (document(view, now_s, parts=parts) for view in found)
        write_them(shown, one=wanted.one and bool(found))
    elif not found:
        what = ", ".join(kind.plural for kind in wanted.kinds) or "objects"
        where = "" if wanted.namespace in (None, DEFAULT_NAMESPACE) else f" in {wanted.namespace}"
        screen.talk(f"no {what}{where}")
    else:
        screen.table(*cells(found, wanted, wide=output == "wide"))
        if any(view.kind.runs and not view.over for view in found):
            _say_standstill(screen)
        if screen.talk_is_terminal:
            _hint(found, screen)


def _say_standstill(screen: Screen) -> None:
    """Their status cannot say that it cannot be written."""
    from fleetctl.cli.system.standstill import standstill

    still = standstill(home())
    if still is not None:
        screen.warn(still.why)
        screen.hint(still.hint)


def named(view: View) -> str:
    """`batchjob/x`, which is no more than kubectl says: scripts put `-n` behind it."""
    return safe(object_key(view.kind.name, view.resource.name))


def cells(
    found: list[View], wanted: Wanted, *, wide: bool, whole: bool = False
) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a table of these objects. whole: with columns that have nothing,
    for what comes later may have it.
    """
    shown = columns(wanted.kind, wide=wide)
    if wanted.kind is not None and wanted.kind.name == "Volume":
        from fleetctl.cli.volumesize import with_size

        shown = with_size(shown)
    if wanted.labels or wanted.show_labels:
        shown = (*shown, *labels_asked(wanted.labels, everything=wanted.show_labels))
    if wanted.namespace is None and (wanted.kind is None or wanted.kind.namespaced):
        shown = (NAMESPACE, *shown)
    now_s = SystemClock().now_s()
    rows = [[column.cell(view, now_s) for column in shown] for view in found]
    if wide or whole:
        header = [column.title for column in shown]
    else:
        header, rows = filled(shown, rows)
    return header if wanted.headers else [], rows


def warn_if_stopped(found: Sequence[View], screen: Screen) -> None:
    """A table is as old as its controller, and would otherwise not show it."""
    waits = any(
        view.phase in (PENDING, RUNNING, DELETING) and (view.kind.runs or view.phase == DELETING)
        for view in found
    )
    if not waits:
        return
    from fleetctl.cli.starting import holder

    if holder(home()) is None:
        screen.warn("no controller runs, so nothing moves on until `fleetctl up --detach`")


def _hint(found: list[View], screen: Screen) -> None:
    """One line for the newest object that does not get on."""
    for view in reversed(found):
        if stands_still(view):
            because = safe(shorten(why(view), HINT_CHARS_MAX))
            verb = "failed" if view.phase == "Failed" else "waits"
            name, key = safe(view.resource.name), safe(view.key)
            screen.hint(f"{name} {verb}: {because} (fleetctl describe {key})")
            return
