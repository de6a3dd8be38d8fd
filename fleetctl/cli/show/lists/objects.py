"""Which objects `get` lists, and the rows of their table. Called by get.py and watch.py."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.text import safe
from fleetctl.specs.kinds.registry import Kind
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, object_key
from fleetctl.views.columns import NAMESPACE, columns, filled, labels_asked
from fleetctl.views.kinds import Target, kinds_of, target, target_of
from fleetctl.views.objects import (
    View,
    document,
)
from fleetctl.views.reading import Reading, must_find_all
from fleetctl.views.selectors import Term, matches

HINT_CHARS_MAX = 100


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


def wanted_of(args: Namespace) -> Wanted:
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
                f"`get all` takes no names, and `{words[1]}` is a name",
                hint="`fleetctl get KIND NAME`",
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
    from fleetctl.cli.output.select import picked

    now_s = SystemClock().now_s()
    return picked(
        found,
        lambda view, parts: document(view, now_s, parts=parts),
        fields=args.fields,
        sort_by=args.sort_by,
    )


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
        from fleetctl.cli.show.lists.volume_size import with_size

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
