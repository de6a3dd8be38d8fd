"""Strategic merge, in kustomize's words: mappings are merged field by field, `null` takes a field
away, lists are replaced as a whole - but for those whose entries have a name, which are merged one
by one. `$patch: delete` takes an entry or a field away, `$patch: replace` puts a mapping in the
place of the old one.

What is merged keeps where each piece of it was written, so that what is wrong with it later is told
at its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.manifest.messages import Finding, suggestion
from fleetctl.manifest.positions import Written
from fleetctl.manifest.problems import Path, value_text

# Lists whose entries a patch changes one by one, and what tells them apart.
MERGE_KEYS = {"env": "name", "services": "name", "stages": "name", "volumes": "name"}
DIRECTIVE, DELETE, REPLACE = "$patch", "delete", "replace"

Parts = dict[Path, tuple[Written, Path]]


@dataclass(slots=True)
class Merge:
    """One patch that is laid over a tree. parts: of the merged tree, what stands elsewhere than its
    path says. found: what is wrong with the patch, by its own paths.
    """

    base: Written
    patch: Written
    parts: Parts
    found: list[Finding]

    def mapping(self, old: dict[str, Any], new: dict[str, Any], at: Path, there: Path) -> None:
        """Change `old` in place. at: its path in the merged tree; there: that of `new` in the
        patch.
        """
        for key, value in new.items():
            path, source = (*at, key), (*there, key)
            if key == DIRECTIVE:
                self._unknown(value, source)
            elif value is None or _directive(value) == DELETE:
                if key not in old:
                    hint = suggestion(key, list(old)) if old else ""
                    self.found.append(
                        Finding(source, path, " takes away what is not there", hint, at_key=True)
                    )
                old.pop(key, None)
                self._forget(path)
            else:
                self._field(old, key, value, path, source)

    def _field(self, old: dict[str, Any], key: str, value: Any, path: Path, source: Path) -> None:
        here = old.get(key)
        if isinstance(value, dict):
            if isinstance(here, list) and key == "env":
                here = old[key] = _as_mapping(here)
            if isinstance(here, dict) and _directive(value) != REPLACE:
                self.mapping(here, value, path, source)
                return
            value = {name: it for name, it in value.items() if name != DIRECTIVE}
        elif isinstance(value, list) and isinstance(here, list) and _named(key, here, value):
            old[key] = self._entries(here, value, MERGE_KEYS[key], path, source)
            return
        old[key] = value
        self._put(path, self.patch, source)

    def _entries(
        self, old: list[Any], new: list[Any], name: str, path: Path, source: Path
    ) -> list[Any]:
        """Old ones in their order, then new ones."""
        origins = {entry[name]: self._origin((*path, at)) for at, entry in enumerate(old)}
        inner = {entry[name]: self._below((*path, at)) for at, entry in enumerate(old)}
        entries = {entry[name]: entry for entry in old}
        self._forget(path)
        changes: list[tuple[dict[str, Any], Path]] = []
        for number, entry in enumerate(new):
            word, there = entry[name], (*source, number)
            directive = _directive(entry)
            bare = {key: it for key, it in entry.items() if key != DIRECTIVE}
            if directive == DELETE:
                if entries.pop(word, None) is None:
                    hint = suggestion(str(word), [str(it) for it in entries])
                    message = f" takes away `{word}`, which is not there"
                    self.found.append(Finding(there, path, message, hint))
            elif word in entries and directive != REPLACE:
                changes.append((bare, there))
            else:
                entries[word], inner[word] = bare, {}
                origins[word] = (self.patch, there)
        numbers = {word: number for number, word in enumerate(entries)}
        for word, number in numbers.items():
            self._put((*path, number), *origins[word])
            for rest, origin in inner[word].items():
                self.parts[(*path, number, *rest)] = origin
        for change, there in changes:
            word = change[name]
            if word in entries:
                self.mapping(entries[word], change, (*path, numbers[word]), there)
        return list(entries.values())

    def _unknown(self, value: object, source: Path) -> None:
        if value != REPLACE:
            message = f" is {value_text(value)}; it must be `{DELETE}` or `{REPLACE}`"
            self.found.append(Finding(source, source, message))

    def _origin(self, path: Path) -> tuple[Written, Path]:
        """Where what stands at a path of the merged tree was written."""
        for depth in range(len(path), -1, -1):
            if path[:depth] in self.parts:
                written, there = self.parts[path[:depth]]
                return written, (*there, *path[depth:])
        return self.base, path

    def _below(self, path: Path) -> Parts:
        depth = len(path)
        return {
            it[depth:]: origin
            for it, origin in self.parts.items()
            if len(it) > depth and it[:depth] == path
        }

    def _forget(self, path: Path) -> None:
        for it in [it for it in self.parts if it[: len(path)] == path]:
            del self.parts[it]

    def _put(self, path: Path, written: Written, there: Path) -> None:
        self._forget(path)
        if written is not self.base or there != path:
            self.parts[path] = (written, there)


def _directive(value: Any) -> Any:
    return value.get(DIRECTIVE) if isinstance(value, dict) else None


def _named(key: str, *lists: list[Any]) -> bool:
    """Whether all entries have the name that this field's entries are told apart by, once each."""
    name = MERGE_KEYS.get(key)
    if name is None:
        return False
    for entries in lists:
        words = [it.get(name) if isinstance(it, dict) else None for it in entries]
        if not all(isinstance(it, str) for it in words) or len(set(words)) < len(words):
            return False
    return True


def _as_mapping(entries: list[Any]) -> Any:
    """The list form of `env`; what is not that stays."""
    if not all(isinstance(it, dict) and set(it) == {"name", "value"} for it in entries):
        return entries
    return {it["name"]: it["value"] for it in entries}


def paths_in(value: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Of a manifest or a part of one, where it names files relative to its own: what holds the
    path, and the key.
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
    for within, key, inner in ((tasks, "fromFile", "path"), (spec, "searchFrom", "file")):
        if not isinstance(within, dict):
            continue
        named = within.get(key)
        if isinstance(named, str):
            yield within, key
        elif isinstance(named, dict) and isinstance(named.get(inner), str):
            yield named, inner
