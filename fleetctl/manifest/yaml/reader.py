"""Strict YAML: one walk over the parser's events, with limits, that builds plain Python values;
anchors and aliases only where W&B's reader expands them.

Refuses duplicate keys, aliases and anchors, tags, merge keys and keys that are not texts, and goes
on, so that one reading finds all of them. The walk has no recursion, and in our own manifests
aliases are never expanded. Where a dialect expands them, a repeated value is not copied, but a
reader of the document meets it each time: so expansions are counted, and no file is a bomb.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import yaml

from fleetctl.common.finding import Path
from fleetctl.manifest.plain_scalars import resolve_scalar
from fleetctl.manifest.problems import (
    ManifestProblem,
    mask_credential,
    path_text,
    shorten_text,
    value_text,
)
from fleetctl.manifest.yaml.syntax_errors import Position, reader_problem, syntax_problem

DEPTH_MAX = 64  # the deepest valid manifest has about 15 levels
NODES_MAX = 2_000_000  # a BatchJob of 100,000 items with eight parameters each
KEYS_MAX = 10_000  # per mapping
DOCUMENTS_MAX = 10_000
UNWANTED_SHOWN_MAX = 3  # anchors and aliases that are reported; a file with one has a hundred
MISTAKES_MAX = 1000  # per file; reading ends there
JSON_CHARS_MAX = 16_384  # too few for NODES_MAX and KEYS_MAX
KEY_CHARS_MAX = 1000  # YAML ends a key after 1,024
TAG_DIRECTIVES_MAX = 16  # the parser compares each with all before it

LIST, ITEMS = "List", "items"  # of `kind: List`, as `get -o json` and kubectl write it

V = TypeVar("V")

_OLD_WORDS = frozenset(("y", "n", "yes", "no", "on", "off"))
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SURROGATES = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_BARE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")

REPEATED_MAX = 100_000  # values that all aliases of a document stand for


@dataclass(slots=True)
class YamlDocument:
    """One document.

    keys, values: positions of the paths that the reader was asked for. collections: those of the
    paths that hold others. written: the texts of numbers. broken: paths of values that differ from
    the author's; a model's errors there are noise. old_words: keys without quotes that are truths
    in YAML 1.1.
    """

    value: Any
    position: Position
    keys: dict[Path, Position] = field(default_factory=dict)
    values: dict[Path, Position] = field(default_factory=dict)
    collections: set[Path] = field(default_factory=set)
    written: dict[Path, str] = field(default_factory=dict)
    broken: set[Path] = field(default_factory=set)
    old_words: set[Path] = field(default_factory=set)
    prefix: Path = ()  # of an item of a list: where that list has it


@dataclass(slots=True)
class YamlReading:
    """The content of a text; when a problem ends the reading, the documents before it remain."""

    roots: list[YamlDocument] = field(default_factory=list)
    problems: list[ManifestProblem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class YamlDialect:
    """A dialect of YAML. plain: the value of a scalar without quotes. tags: the value of a scalar
    with `!!NAME`; no other tag is known. aliases: they stand for the content of their anchor, and
    `<<` merges it.
    """

    plain: Callable[[str], Any] = resolve_scalar
    tags: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    aliases: bool = False


OURS = YamlDialect()


def read_yaml(
    file: str,
    text: str,
    *,
    wanted: frozenset[Path] = frozenset(),
    dialect: YamlDialect = OURS,
) -> YamlReading:
    """Reads all documents of a text; empty ones are left out. wanted: paths whose positions to
    keep.
    """
    if not wanted and dialect is OURS and (reading := _read_json_line(text)) is not None:
        return reading
    walk = _EventWalk(file, wanted, dialect)
    if text.count("\n%TAG") > TAG_DIRECTIVES_MAX:
        walk.report((1, 1), f"at most {TAG_DIRECTIVES_MAX} `%TAG` directives are read")
        return walk.reading
    try:
        for event in yaml.parse(_as_yaml(text), Loader=_LOADER):
            if not walk.take(event):
                break
    except UnicodeEncodeError as error:
        walk.report((1, 1), f"U+{ord(text[error.start]):04X} is half a character")
    except yaml.reader.ReaderError as error:
        walk.report(*reader_problem(text, error))
    except yaml.MarkedYAMLError as error:
        walk.report(*syntax_problem(text, error, walk.unclosed(text)))
    walk.say_the_rest()
    return walk.reading


class _OpenCollection:
    """An open collection. wanted: the position of an entry was requested. merged: entries that `<<`
    adds.
    """

    __slots__ = ("anchor", "at", "container", "full", "key", "keyed", "merged", "merges", "wanted")

    def __init__(
        self,
        container: Any,
        at: Position,
        anchor: str | None,
        *,
        wanted: bool,
    ) -> None:
        self.container = container
        self.at = at
        self.anchor = anchor
        self.merged: list[Any] = []
        self.merges = False  # the value that comes next is merged
        self.wanted = wanted
        self.key: str | None = None
        self.full = False
        self.keyed = False  # a key was read and its value comes next


class _EventWalk:
    def __init__(
        self,
        file: str,
        wanted: frozenset[Path],
        dialect: YamlDialect,
    ) -> None:
        self.file = file
        self.dialect = dialect
        self.wanted = wanted
        self.wanted_in = {path[:-1] for path in wanted if path}
        self.reading = YamlReading()
        self.stack: list[_OpenCollection] = []
        self.root = YamlDocument(None, (1, 1))
        self.nodes = 0
        self.documents = 0
        self.unwanted = 0  # anchors and aliases
        # position of the first fault that is not reported by itself
        self.unwanted_at: Position = (1, 1)
        self.anchors = YamlAnchors() if dialect.aliases else None

    def report(
        self,
        at: Position,
        message: str,
        hint: str = "",
    ) -> None:
        self.reading.problems.append(ManifestProblem(self.file, *at, message, hint))

    def take(self, event: Any) -> bool:
        """Uses one event; False ends the reading."""
        if len(self.reading.problems) >= MISTAKES_MAX:
            self.report(_event_position(event), "reading ends here, after too many mistakes")
            return False
        sort = event.__class__
        if sort is yaml.ScalarEvent:
            return self._scalar(event)
        if sort is yaml.MappingStartEvent or sort is yaml.SequenceStartEvent:
            return self._open(event, {} if sort is yaml.MappingStartEvent else [])
        if sort is yaml.MappingEndEvent or sort is yaml.SequenceEndEvent:
            frame = self.stack.pop()
            if frame.merged and not merge_mappings(frame.container, frame.merged):
                self.report(frame.at, "`<<` merges mappings alone")
            if frame.anchor is not None and self.anchors is not None:
                self.anchors.close(frame.anchor, frame.container)
            self._add(frame.container, frame.at)
        elif sort is yaml.AliasEvent and self.anchors is not None:
            return self._repeat(event, self.anchors)
        elif sort is yaml.AliasEvent:
            self._report_unwanted(
                _event_position(event), f"`*{shorten_text(event.anchor)}` is an alias"
            )
            self._add(None, _event_position(event), broken=True)
        elif sort is yaml.DocumentEndEvent:
            return self._document(_event_position(event))
        return True

    def _scalar(self, event: Any) -> bool:
        at = _event_position(event)
        broken = self._report_decoration(event, at)
        value: Any = event.value
        make = self._tagged(event)
        if event.implicit[0] and not broken:
            make = self.dialect.plain
        if make is not None:
            try:
                value = make(value)
            except ValueError as error:
                shown = mask_credential(value, self._path()) or f"`{shorten_text(value)}`"
                self.report(at, f"{self._name_path()}{shown}; {error}")
                broken = True
        if event.anchor is not None and self.anchors is not None:
            self.anchors.close(event.anchor, value)
        self._add(value, at, broken=broken, written=event.value if event.implicit[0] else "")
        return self._count_node(at)

    def _repeat(self, event: Any, anchors: YamlAnchors) -> bool:
        """Repeats the content of an anchor."""
        at = _event_position(event)
        try:
            value = anchors.repeat(event.anchor, depth_max=DEPTH_MAX - len(self.stack))
        except ValueError as error:
            self.report(at, f"`*{shorten_text(event.anchor)}` {error}")
            self._add(None, at, broken=True)
            return not anchors.full
        self._add(value, at)
        return True

    def _open(self, event: Any, container: Any) -> bool:
        at = _event_position(event)
        self._report_decoration(event, at)
        if len(self.stack) >= DEPTH_MAX:
            self.report(at, f"the document is nested more than {DEPTH_MAX} levels deep")
            return False
        wanted = bool(self.wanted_in) and self._path() in self.wanted_in
        if event.anchor is not None and self.anchors is not None:
            self.anchors.open(event.anchor)
        self.stack.append(_OpenCollection(container, at, event.anchor, wanted=wanted))
        return self._count_node(at)

    def _count_node(self, at: Position) -> bool:
        self.nodes += 1
        if self.nodes > NODES_MAX:
            self.report(at, f"the file holds more than {NODES_MAX:,} values; use `tasks.fromFile`")
            return False
        return True

    def _report_decoration(self, event: Any, at: Position) -> bool:
        """Reports an anchor or a tag; True when the tag makes the value something else."""
        if event.anchor is not None and self.anchors is None:
            self._report_unwanted(at, f"`&{shorten_text(event.anchor)}` is an anchor")
        if event.tag is None or self._tagged(event) is not None:
            return False
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        self.report(at, f"`{shorten_text(tag)}` is a tag; a value must be written without one")
        return True

    def _tagged(self, event: Any) -> Callable[[str], Any] | None:
        if event.tag is None or event.__class__ is not yaml.ScalarEvent:
            return None
        return self.dialect.tags.get(event.tag.removeprefix("tag:yaml.org,2002:"))

    def unclosed(self, text: str) -> Position | None:
        """Returns the position of the innermost collection in brackets that is still open."""
        lines = text.splitlines()
        for frame in reversed(self.stack):
            line, column = frame.at
            if lines[line - 1][column - 1 : column] in ("[", "{"):
                return frame.at
        return None

    def _report_unwanted(self, at: Position, what: str) -> None:
        self.unwanted += 1
        if self.unwanted <= UNWANTED_SHOWN_MAX:
            message = f"{what}; each value must be written out where it is used"
            self.report(at, message, "if a text is meant, put it into quotes")
        elif self.unwanted == UNWANTED_SHOWN_MAX + 1:
            self.unwanted_at = at

    def say_the_rest(self) -> None:
        """Reports the rest of the anchors and aliases, which were not listed one by one."""
        more = self.unwanted - UNWANTED_SHOWN_MAX
        if more > 0:
            what = "anchor or alias" if more == 1 else "anchors and aliases"
            self.report(self.unwanted_at, f"and {more:,} more {what}")

    def _add(
        self,
        value: Any,
        at: Position,
        *,
        broken: bool = False,
        written: str = "",
    ) -> None:
        """Put a finished value into the collection around it. written: a plain scalar's text."""
        if not self.stack:
            self.root.value, self.root.position = value, at
            if broken:
                self.root.broken.add(())
            return
        frame = self.stack[-1]
        if isinstance(frame.container, dict):
            if not frame.keyed:
                self._key(
                    frame,
                    value,
                    at,
                    broken=broken,
                    plain=bool(written),
                )
                return
            if frame.wanted or broken:
                self._mark(value, at, broken=broken, written=written)
            frame.keyed = False
            if frame.merges:
                frame.merges = False
                frame.merged += value if isinstance(value, list) else [value]
            elif frame.key is not None:
                frame.container[frame.key] = value
        else:
            if frame.wanted or broken:
                self._mark(value, at, broken=broken, written=written)
            frame.container.append(value)

    def _key(
        self,
        frame: _OpenCollection,
        key: Any,
        at: Position,
        *,
        broken: bool,
        plain: bool,
    ) -> None:
        frame.keyed = True
        frame.key = None
        if not isinstance(key, str):
            if not broken:
                self.report(at, f"{value_text(key)} is a key; a key must be a text, so quote it")
        elif key == "<<" and plain and self.anchors is not None:
            frame.merges = True
        elif key == "<<" and plain:
            self.report(at, "`<<` merges mappings; each value must be written out where it is used")
        elif len(frame.container) == KEYS_MAX:
            if not frame.full:
                self.report(at, f"a mapping may hold at most {KEYS_MAX:,} keys")
            frame.full = True
        elif key in frame.container:
            self.report(at, f"`{path_text((*self._path()[:-1], key))}` is given twice")
        else:
            frame.key = key
            frame.container[key] = None
            if plain and key.lower() in _OLD_WORDS:
                self.root.old_words.add(self._path())
            if frame.wanted and (path := self._path()) in self.wanted:
                self.root.keys[path] = at

    def _mark(
        self,
        value: Any,
        at: Position,
        *,
        broken: bool,
        written: str,
    ) -> None:
        path = self._path()
        if path in self.wanted:
            self.root.values[path] = at
            if isinstance(value, dict | list):
                self.root.collections.add(path)
            if written and isinstance(value, int | float):
                self.root.written[path] = written
        if broken:
            self.root.broken.add(path)

    def _name_path(self) -> str:
        path = self._path()
        if path:
            return f"{path_text(path)} is "
        return ""

    def _path(self) -> Path:
        return tuple(
            (frame.key or "") if isinstance(frame.container, dict) else len(frame.container)
            for frame in self.stack
        )

    def _document(self, at: Position) -> bool:
        root, self.root = self.root, YamlDocument(None, (1, 1))
        self.anchors = YamlAnchors() if self.dialect.aliases else None
        self.documents += 1
        if root.value is not None or root.broken:
            self.reading.roots.append(root)
        if self.documents > DOCUMENTS_MAX:
            self.report(at, f"a file may hold at most {DOCUMENTS_MAX:,} documents")
            return False
        return True


def _read_json_line(text: str) -> YamlReading | None:
    """Reads a line of JSON, as the operator applies it, for a fifth of what the walk costs. Returns
    None for a text that YAML may read otherwise, or whose mistakes the walk explains.
    """
    if len(text) > JSON_CHARS_MAX or not text.startswith("{"):
        return None
    if not (text.isascii() and text.isprintable()) or "\\u" in text:
        return None
    if text.count("{") + text.count("[") > DEPTH_MAX:
        return None
    try:
        value = _JSON.decode(text)
    except ValueError:
        return None
    return YamlReading([YamlDocument(value, (1, 1))])


def _mapping_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs) or any(len(key) > KEY_CHARS_MAX for key in made):
        raise ValueError
    return made


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


_JSON = json.JSONDecoder(
    object_pairs_hook=_mapping_of,
    parse_float=resolve_scalar,
    parse_int=resolve_scalar,
    parse_constant=_refuse_constant,
)


def _event_position(event: Any) -> Position:
    mark = event.start_mark
    return mark.line + 1, mark.column + 1


def _as_yaml(text: str) -> str:
    """Makes YAML of JSON: only characters as two escapes, and bare control characters, differ."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    if not ("\\u" in text or _BARE.search(text)) or not _is_json(text):
        return text
    return _BARE.sub(lambda it: f"\\u{ord(it[0]):04x}", _SURROGATES.sub(_join_surrogates, text))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _join_surrogates(match: re.Match[str]) -> str:
    high = int(match[1], 16)
    low = int(match[2], 16)
    return f"\\U{0x10000 + (high - 0xD800) * 0x400 + (low - 0xDC00):08x}"


class YamlAnchors:
    """The anchors of a document. full: more than REPEATED_MAX; reading has to end."""

    def __init__(self) -> None:
        self.full = False
        self._values: dict[str, Any] = {}
        self._sizes: dict[str, tuple[int, int]] = {}  # values, and how deep they are
        self._open: set[str] = set()
        self._repeated = 0

    def open(self, name: str) -> None:
        """A collection begins."""
        self._open.add(name)

    def close(self, name: str, value: Any) -> None:
        """A value is whole; a name that stands for something already is another from here on."""
        self._open.discard(name)
        self._values[name] = value
        self._sizes.pop(name, None)

    def repeat(self, name: str, *, depth_max: int) -> Any:
        """Returns the value of an alias. Raises ValueError with the rest of a sentence about the
        alias.
        """
        if name in self._open:
            raise ValueError("is an alias of a value that holds it")
        if name not in self._values:
            raise ValueError(f"is an alias, and no `&{name}` is before it")
        size, depth = self._sizes.get(name) or self._measured(name)
        self._repeated += size
        if self._repeated > REPEATED_MAX:
            self.full = True
            raise ValueError(f"is one too many: they stand for more than {REPEATED_MAX:,} values")
        if depth > depth_max:
            raise ValueError("is nested too deep")
        return self._values[name]

    def _measured(self, name: str) -> tuple[int, int]:
        """Returns the size and the depth of an anchor. All values of a level are counted before the
        next level; at most as many as may be repeated.
        """
        size = 0
        depth = 0
        level = [self._values[name]]
        while level and size <= REPEATED_MAX:
            size += len(level)
            depth += any(isinstance(it, dict | list) for it in level)
            level = [below for it in level for below in _child_values(it)]
        self._sizes[name] = size, depth
        return size, depth


def merge_mappings(container: dict[str, Any], merged: Sequence[Any]) -> bool:
    """Adds the entries of `<<`: a mapping's own keys win, and of merged ones the first. Returns
    False if a merged value is not a mapping.
    """
    for one in merged:
        if not isinstance(one, dict):
            return False
        for key, value in one.items():
            container.setdefault(key, value)
    return True


def _child_values(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list):
        return value
    return ()


def read_manifests(
    file: str,
    text: str,
    *,
    wanted: Iterable[tuple[Path, Path]] = (),
) -> YamlReading:
    """Reads as `read_yaml`, with the items of each list instead of the list.

    wanted: paths whose positions to keep, each behind the prefix of its document.
    """
    paths: set[Path] = set()
    for prefix, path in wanted:
        whole = (*prefix, *path)
        paths.update(whole[:depth] for depth in range(1, len(whole) + 1))
    reading = read_yaml(file, text, wanted=frozenset(paths))
    reading.roots = [one for root in reading.roots for one in _split_list(root)]
    return reading


def _split_list(root: YamlDocument) -> Iterator[YamlDocument]:
    data = root.value
    listing = isinstance(data, dict) and data.get("kind") == LIST
    if not listing or not isinstance(data.get(ITEMS), list):
        yield root
        return
    for number, item in enumerate(data[ITEMS]):
        prefix: Path = (ITEMS, number)
        yield YamlDocument(
            value=item,
            position=root.values.get(prefix, root.position),
            keys=_marks_below(prefix, root.keys),
            values=_marks_below(prefix, root.values),
            collections={path[2:] for path in root.collections if path[:2] == prefix},
            written=_marks_below(prefix, root.written),
            broken={path[2:] for path in root.broken if path[:2] == prefix},
            prefix=prefix,
        )


def _marks_below(prefix: Path, marks: dict[Path, V]) -> dict[Path, V]:
    depth = len(prefix)
    return {path[depth:]: at for path, at in marks.items() if path[:depth] == prefix}
