"""Strategic merge, in kustomize's words: mappings are merged field by field, `null` takes a field
out; each path of the result is mapped to the document that it comes from.

`$patch: delete` takes an entry or a field away, `$patch: replace` replaces a mapping. A merged
value keeps the origin of each of its pieces, so that a later finding has the right position.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.findings import suggest_name
from fleetctl.manifest.positions import ManifestOrigin
from fleetctl.manifest.problems import value_text

Origin = tuple[ManifestOrigin, Path]

# Lists whose entries a patch changes one by one, and the field that identifies an entry.
MERGE_KEYS = dict.fromkeys(("env", "groups", "services", "stages", "volumes"), "name")
HINTS_MAX, NEAR_MAX = 20, 1_000  # per patch, and names that are compared
DIRECTIVE = "$patch"
DELETE = "delete"
REPLACE = "replace"


class MergeOrigins(dict[Path, Origin]):
    """The origins of values by path. An absent path has the origin of the nearest path above it, or
    else comes from the base, at the same path. Each field of a patch reads and changes the map, so
    the known paths below each path are indexed.
    """

    def __init__(self, base: ManifestOrigin) -> None:
        super().__init__()
        self.base = base
        self._under: dict[Path, set[Path]] = {}  # the known paths at and below each path

    def put(self, path: Path, origin_of_value: Origin) -> None:
        """Sets the origin of a new value at the path, and forgets the origins below it."""
        self.forget(path)
        if origin_of_value != (self.base, path):
            self.add(path, origin_of_value)

    def add(self, path: Path, origin_of_value: Origin) -> None:
        """Adds an origin, and keeps the known origins below it."""
        self[path] = origin_of_value
        for depth in range(len(path) + 1):
            self._under.setdefault(path[:depth], set()).add(path)

    def forget(self, path: Path) -> None:
        """Forgets the origins at and below a path, whose value was removed or replaced."""
        for known in tuple(self._under.pop(path, ())):
            del self[known]
            for depth in range(len(known) + 1):
                if known[:depth] in self._under:
                    self._under[known[:depth]].discard(known)

    def origin(self, path: Path) -> Origin:
        """Returns the origin of the value at a path."""
        for depth in range(len(path), -1, -1):
            if path[:depth] in self:
                document, above = self[path[:depth]]
                return document, (*above, *path[depth:])
        return self.base, path

    def below(self, path: Path) -> dict[Path, Origin]:
        """Returns the origins below a path, by their paths from there."""
        depth = len(path)
        return {it[depth:]: self[it] for it in self._under.get(path, ()) if len(it) > depth}


@dataclass(slots=True)
class StrategicMerge:
    """One patch that is laid over a tree. parts: paths of the merged tree whose values stand in
    another document. found: faults of the patch, by its own paths.
    """

    patch: ManifestOrigin
    parts: MergeOrigins
    found: list[Finding]

    def mapping(
        self,
        old: dict[str, Any],
        new: dict[str, Any],
        at: Path,
        there: Path,
    ) -> None:
        """Merges `new` into `old`. at: path of `old` in the merged tree; there: path of `new` in
        the patch.
        """
        for key, value in new.items():
            path = (*at, key)
            source = (*there, key)
            if key == DIRECTIVE:
                self._unknown(value, source)
            elif value is None or _read_directive(value) == DELETE:
                if key not in old:
                    hint = self._suggest_key(key, old)
                    self.found.append(
                        Finding(source, " removes what is not there", hint, at_key=True, about=path)
                    )
                old.pop(key, None)
                self.parts.forget(path)
            else:
                self._field(
                    old,
                    key,
                    value,
                    path,
                    source,
                )

    def _field(
        self,
        old: dict[str, Any],
        key: str,
        value: Any,
        path: Path,
        source: Path,
    ) -> None:
        here = old.get(key)
        if isinstance(value, dict):
            if isinstance(here, list) and key == "env":
                here = old[key] = _as_mapping(here)
            if isinstance(here, dict) and _read_directive(value) != REPLACE:
                self.mapping(here, value, path, source)
                return
            value = {name: it for name, it in value.items() if name != DIRECTIVE}
        elif (
            isinstance(value, list)
            and isinstance(here, list)
            and _has_merge_names(key, here, value)
        ):
            old[key] = self._entries(
                here,
                value,
                MERGE_KEYS[key],
                path,
                source,
            )
            return
        old[key] = value
        self.parts.put(path, (self.patch, source))

    def _entries(
        self,
        old: list[Any],
        new: list[Any],
        name: str,
        path: Path,
        source: Path,
    ) -> list[Any]:
        """Returns old entries in their order, then new ones."""
        entries = {entry[name]: entry for entry in old}
        origins = {entry[name]: self.parts.origin((*path, at)) for at, entry in enumerate(old)}
        inner = {entry[name]: self.parts.below((*path, at)) for at, entry in enumerate(old)}
        self.parts.forget(path)

        changes: list[tuple[dict[str, Any], Path]] = []
        for number, entry in enumerate(new):
            word = entry[name]
            there = (*source, number)
            directive = _read_directive(entry)
            bare = {key: it for key, it in entry.items() if key != DIRECTIVE}
            if directive == DELETE:
                self._delete_entry(entries, word, path, there)
            elif word in entries and directive != REPLACE:
                changes.append((bare, there))
            else:
                entries[word] = bare
                inner[word] = {}
                origins[word] = (self.patch, there)

        # Entries have their final numbers now, by which the patches of single fields find them.
        numbers = {word: number for number, word in enumerate(entries)}
        for word, number in numbers.items():
            self.parts.put((*path, number), origins[word])
            for rest, origin in inner[word].items():
                self.parts.add((*path, number, *rest), origin)
        for change, there in changes:
            word = change[name]
            if word in entries:
                self.mapping(entries[word], change, (*path, numbers[word]), there)
        return list(entries.values())

    def _delete_entry(
        self,
        entries: dict[Any, Any],
        word: Any,
        path: Path,
        source: Path,
    ) -> None:
        if entries.pop(word, None) is None:
            hint = self._suggest_key(str(word), entries)
            message = f" removes `{word}`, which is not there"
            self.found.append(Finding(source, message, hint, about=path))

    def _suggest_key(self, word: str, known: Collection[Any]) -> str:
        """Returns a hint, while the limit of hints is not reached."""
        if not known or len(self.found) > HINTS_MAX or len(known) > NEAR_MAX:
            return ""
        return suggest_name(word, [str(it) for it in known])

    def _unknown(self, value: object, source: Path) -> None:
        if value != REPLACE:
            message = f" is {value_text(value)}; it must be `{DELETE}` or `{REPLACE}`"
            self.found.append(Finding(source, message))


def _read_directive(value: Any) -> Any:
    if isinstance(value, dict):
        return value.get(DIRECTIVE)
    return None


def _has_merge_names(key: str, *lists: list[Any]) -> bool:
    """Returns True if all entries have the name that identifies an entry of this field,
    once each.
    """
    name = MERGE_KEYS.get(key)
    if name is None:
        return False
    for entries in lists:
        words = [it.get(name) if isinstance(it, dict) else None for it in entries]
        if not all(isinstance(it, str) for it in words) or len(set(words)) < len(words):
            return False
    return True


def _as_mapping(entries: list[Any]) -> Any:
    """Returns the list form of `env` as a mapping; any other value stays."""
    if not all(isinstance(it, dict) and set(it) == {"name", "value"} for it in entries):
        return entries
    return {it["name"]: it["value"] for it in entries}


def paths_in(value: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields the mappings of a manifest, or a part, that name files relative to its own: the holder
    of the path, and the key.
    """
    spec = value.get("spec")
    if not isinstance(spec, dict):
        return
    template = spec.get("template")
    for holder in (spec, template):
        source = holder.get("source") if isinstance(holder, dict) else None
        if isinstance(source, dict) and isinstance(source.get("path"), str):
            yield source, "path"
    tasks = spec.get("tasks")
    named_by = (
        (tasks, "fromFile", "path"),
        (tasks, "fromFiles", "glob"),
        (spec, "searchFrom", "file"),
    )
    for within, key, inner in named_by:
        if not isinstance(within, dict):
            continue
        named = within.get(key)
        if isinstance(named, str):
            yield within, key
        elif isinstance(named, dict) and isinstance(named.get(inner), str):
            yield named, inner
