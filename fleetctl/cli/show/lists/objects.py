"""Selects the objects that `get` lists, and makes the rows of their table; the size of a volume is
exact, or `-` where it is not known.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import byte_size, escape_line
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.kinds.registry import Kind
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, asset_name, object_key
from fleetctl.views.columns import (
    NAMESPACE,
    TableColumn,
    build_label_columns,
    choose_columns,
    drop_empty_columns,
)
from fleetctl.views.kinds import Target, kinds_of, parse_target, target_of
from fleetctl.views.objects import (
    NONE,
    READY,
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


def with_size(columns: Sequence[TableColumn]) -> tuple[TableColumn, ...]:
    """Returns the columns of volumes with one more behind the provider."""
    at = [column.title for column in columns].index("PROVIDER") + 1
    return (*columns[:at], TableColumn("SIZE", _format_listed_size), *columns[at:])


def _format_listed_size(seen: View, _now_s: float) -> str:
    """Returns the size of this machine's volumes alone; a list sends no request to a provider."""
    if seen.phase != READY:
        return NONE
    from fleetctl.wiring.plugins import listed_bytes

    sort = str(seen.spec().get("provider") or DEFAULT_PROVIDER)
    return _format_size(listed_bytes(sort, find_state_dir(), _at_provider(seen)))


def query_size(seen: View) -> str:
    """Requests the size from the provider, which may take some seconds."""
    if seen.phase != READY:
        return NONE
    import asyncio

    from fleetctl.cli.targets.task import VolumePath, files_of

    target = Target(seen.kind, seen.resource.name, seen.resource.namespace)
    try:
        files = files_of(VolumePath(target, ""), find_state_dir())
    except NotFound:
        return NONE  # the provider is not declared any more
    return _format_size(asyncio.run(files.size(_at_provider(seen))))


def volume_lines(
    seen: View,
    _reading: StoreReading,
    _now_s: float,
) -> Iterator[tuple[str, str]]:
    """Yields the lines of `describe`."""
    yield "Size", query_size(seen)


def _at_provider(seen: View) -> str:
    return asset_name(seen.resource.name, seen.resource.namespace)


def _format_size(size: int | None) -> str:
    if size is None:
        return NONE
    return byte_size(size)
