"""Selects the objects that `get` lists, and makes the rows of their table. Called by get.py and
watch.py."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.text import escape_line
from fleetctl.specs.kinds.registry import Kind
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, object_key
from fleetctl.views.columns import (
    NAMESPACE,
    build_label_columns,
    choose_columns,
    drop_empty_columns,
)
from fleetctl.views.kinds import Target, kinds_of, parse_target, target_of
from fleetctl.views.objects import (
    View,
    build_document,
)
from fleetctl.views.selectors import LabelTerm, matches_labels
from fleetctl.views.store_reading import StoreReading, must_find_all

HINT_CHARS_MAX = 100


class ListRequest:
    """The objects requested on the command line: every object of `kinds` (empty = all kinds) in
    `namespace` (None = all), or the `targets`; and the form of their table.
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
        """Returns the only requested kind; None for a mixture."""
        if len(self.kinds) == 1:
            return self.kinds[0]
        return None

    @property
    def one(self) -> bool:
        return len(self.targets) == 1

    def views(self, reading: StoreReading, *, specs: bool = False) -> list[View]:
        """Returns all objects of the kinds and the namespace, oldest first."""
        found = reading.views(self.kind, specs=specs, namespace=self.namespace)
        if len(self.kinds) > 1:
            return [it for it in found if it.kind in self.kinds]
        return found


def parse_list_request(args: Namespace) -> ListRequest:
    words = args.words
    namespace = None if args.everywhere else args.namespace
    kinds, targets = _parse_words(words, namespace)
    return ListRequest(
        kinds,
        targets,
        namespace,
        labels=args.label_columns,
        show_labels=args.show_labels,
        headers=not args.no_headers,
    )


def _parse_words(words: Sequence[str], namespace: str | None) -> tuple[list[Kind], list[Target]]:
    """Returns the kinds and the objects of the words; without objects all of the kinds."""
    if namespace is None and ("/" in words[0] or len(words) > 1):
        raise UsageError("a name is looked for in one namespace", hint="say which with -n")
    within = namespace or DEFAULT_NAMESPACE
    if "/" in words[0]:
        targets = [parse_target(word, within) for word in words]
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


def select_objects(
    wanted: ListRequest,
    terms: Sequence[LabelTerm],
    reading: StoreReading,
    *,
    specs: bool = False,
) -> list[View]:
    """Returns the requested objects, oldest first. Raises NotFound for a missing name.

    specs: all specs will be needed, and are read at once.
    """
    if not wanted.targets:
        seen = wanted.views(reading, specs=specs)
    else:
        seen = must_find_all(wanted.targets, reading)
    if terms:
        return [view for view in seen if matches_labels(view.resource.labels, terms)]
    return seen


def filter_objects(found: list[View], args: Namespace) -> list[View]:
    """Returns those that `--field-selector` takes, in the order of `--sort-by`."""
    if not args.fields and not args.sort_by:
        return found
    from fleetctl.cli.output.select import select_items

    now_s = SystemClock().now_s()
    return select_items(
        found,
        lambda view, parts: build_document(view, now_s, parts=parts),
        fields=args.fields,
        sort_by=args.sort_by,
    )


def format_name(view: View) -> str:
    """Returns `batchjob/x`, as kubectl does: scripts put `-n` behind it."""
    return escape_line(object_key(view.kind.name, view.resource.name))


def build_table(
    found: list[View],
    wanted: ListRequest,
    *,
    wide: bool,
    whole: bool = False,
) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows of a table of these objects. whole: with empty columns, for
    later rows may fill them.
    """
    shown = choose_columns(wanted.kind, wide=wide)
    if wanted.kind is not None and wanted.kind.name == "Volume":
        from fleetctl.cli.show.lists.volume_size import with_size

        shown = with_size(shown)
    if wanted.labels or wanted.show_labels:
        shown = (*shown, *build_label_columns(wanted.labels, everything=wanted.show_labels))
    if wanted.namespace is None and (wanted.kind is None or wanted.kind.namespaced):
        shown = (NAMESPACE, *shown)
    now_s = SystemClock().now_s()
    rows = [[column.cell(view, now_s) for column in shown] for view in found]
    if wide or whole:
        header = [column.title for column in shown]
    else:
        header, rows = drop_empty_columns(shown, rows)
    return header if wanted.headers else [], rows
