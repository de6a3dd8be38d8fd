"""A mapping of another tool's file that remembers which of its fields were taken out, with the
amounts and the variables of SkyPilot and dstack.

Fields that no converter took are reported at the end, so that no field is lost silently. Values
are never reported: they may be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

NAME_CHARS_MAX = 63
_NO_COUNTERPART = "has no counterpart here"
_MISFIT = re.compile(r"[^a-z0-9]+")
_LAST = re.compile(r"(\.[^.\[\]]*|\[\d+\])$")

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?b?)?", re.I)

_RANK = "${NODE_RANK:-0}"
_NODES = "${NNODES:-1}"
_IPS = "${FLEETCTL_NODE_IPS:-127.0.0.1}"
_FIRST = "${MASTER_ADDR:-127.0.0.1}"
_GPUS = "GPUS"  # stands for how many each node has
_ALL_GPUS = "ALL"  # and the number of GPUs of all nodes

SKYPILOT: Mapping[str, str] = {
    "SKYPILOT_NODE_RANK": _RANK,
    "SKYPILOT_NUM_NODES": _NODES,
    "SKYPILOT_NODE_IPS": _IPS,
    "SKYPILOT_NUM_GPUS_PER_NODE": _GPUS,
    "SKYPILOT_SETUP_NODE_RANK": _RANK,
    "SKYPILOT_SETUP_NODE_IPS": _IPS,
    "SKYPILOT_SETUP_NUM_GPUS_PER_NODE": _GPUS,
}
DSTACK: Mapping[str, str] = {
    "DSTACK_NODE_RANK": _RANK,
    "DSTACK_NODES_NUM": _NODES,
    "DSTACK_NODES_IPS": _IPS,
    "DSTACK_MASTER_NODE_IP": _FIRST,
    "DSTACK_GPUS_PER_NODE": _GPUS,
    "DSTACK_GPUS_NUM": _ALL_GPUS,
}
_WORD = re.compile(r"\b(?:SKYPILOT|DSTACK)_[A-Z0-9_]+")


@dataclass(frozen=True, slots=True)
class DocumentLines:
    """The location of a document: its file, and the lines of its fields by path."""

    file: str
    lines: Mapping[str, int]

    def at(self, path: str) -> str:
        """Returns `task.yaml:4: `, the prefix of a remark on the field at a path, or on its nearest
        parent.
        """
        while path and path not in self.lines:
            shorter = _LAST.sub("", path)
            path = shorter if shorter != path else ""
        return f"{self.file}:{self.lines.get(path, 1)}: "


class ConversionOptions(NamedTuple):
    """Options of a conversion. name: name for a document without one. old_names: programs find the
    other tool's variables, too.
    """

    name: str
    old_names: bool = False


class ForeignMapping:
    """A mapping of a foreign file. `remarks` is shared by all parts of a file."""

    def __init__(
        self,
        data: Mapping[str, Any],
        remarks: list[str],
        origin: DocumentLines,
        path: str = "",
    ) -> None:
        self._left = dict(data)
        self._notes = remarks
        self._origin = origin
        self._path = path
        self._parts: list[ForeignMapping] = []

    @property
    def place(self) -> str:
        """Returns `task.yaml:4: `, where the document begins."""
        return self._origin.at("")

    def take(self, key: str, *types: type) -> Any:
        """Takes the value, once; None when it is absent, null or, with a remark, of
        another type.
        """
        value = self._left.pop(key, None)
        if value is None or not types:
            return value
        fits = isinstance(value, types) and (bool in types or not isinstance(value, bool))
        if not fits:
            self.say(key, "is not of a type that can be read, and is left out")
        if fits:
            return value
        return None

    def peek(self, key: str) -> Any:
        """The value, which stays to be taken."""
        return self._left.get(key)

    def text(self, key: str) -> str | None:
        """A scalar as text."""
        value = self.take(key, str, int, float)
        if value is None:
            return None
        return str(value)

    def part(self, key: str) -> ForeignMapping:
        """Takes the mapping below; an empty one when it is absent."""
        value = self.take(key, dict)
        return self._part(key, value or {})

    def parts(self, key: str) -> list[ForeignMapping]:
        """The mappings in the list below."""
        found = []
        for number, value in enumerate(self.take(key, list) or []):
            if isinstance(value, dict):
                found.append(self._part(f"{key}[{number}]", value))
            else:
                self.say(f"{key}[{number}]", "is not a mapping, and is left out")
        return found

    def leave(self, why: str, *keys: str) -> None:
        """Reports why the given fields are left out, as far as they are there."""
        for key in keys:
            if self._left.pop(key, None) is not None:
                self.say(key, why)

    def say(self, key: str, why: str) -> None:
        path = f"{self._path}.{key}" if self._path and key else self._path or key
        at = self._origin.at(path)
        self._notes.append(f"{at}`{path}` {why}" if path else f"{at}{why}")

    def drain(self, *, keep_null: bool = False) -> dict[str, Any]:
        """Takes all fields that are left, at once."""
        found = {key: it for key, it in self._left.items() if keep_null or it is not None}
        self._left.clear()
        return found

    def fill(self, values: Mapping[str, Any]) -> None:
        """Add fields that stand elsewhere in the file, to be taken like its own."""
        self._left |= values

    def forget(self) -> None:
        """Drops the fields in here without remarks."""
        self._left.clear()
        self._parts.clear()

    def finish(self) -> None:
        """Reports every field that was not taken, here and below."""
        for key in [key for key, value in self._left.items() if value is not None]:
            self.leave(_NO_COUNTERPART, key)
        for part in self._parts:
            part.finish()

    def __contains__(self, key: str) -> bool:
        return self._left.get(key) is not None

    def __bool__(self) -> bool:
        return any(value is not None for value in self._left.values())

    def _part(self, key: str, value: Mapping[str, Any]) -> ForeignMapping:
        path = f"{self._path}.{key}" if self._path else key
        part = ForeignMapping(value, self._notes, self._origin, path)
        self._parts.append(part)
        return part


# A manifest, with the document that it was made of.
Converted = tuple[ForeignMapping, dict[str, Any]]


def make_name(text: str | None, otherwise: str) -> str:
    """A name that an object can have, as near to `text` as can be."""
    for given in (text, otherwise, "converted"):
        name = _MISFIT.sub("-", (given or "").lower())[:NAME_CHARS_MAX].strip("-")
        if name:
            return name
    raise AssertionError


def build_manifest(
    kind: str,
    name: str,
    spec: Mapping[str, Any],
    **metadata: Any,
) -> dict[str, Any]:
    """Builds a manifest without empty values at the top of its spec and template."""
    from fleetctl.specs.kinds.registry import API_VERSION

    filled = {"name": name, **{key: value for key, value in metadata.items() if value}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": filled, "spec": drop_empty(spec)}


def drop_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drops empty values and None; zero and False stay."""
    return {key: it for key, it in values.items() if it is not None and it not in ("", [], {}, ())}


def lower_end(value: Any) -> str | None:
    """Returns the lower end of `8`, `8+`, `8..16`, `..16`; None without a lower end."""
    text = str(value).strip().rstrip("+")
    low, _, high = text.partition("..")
    return low or high or None


def is_open(value: Any) -> bool:
    """Returns True if more than the lower end would do as well."""
    return isinstance(value, str) and (value.rstrip().endswith("+") or ".." in value)


def parse_cores(value: Any) -> float | int | None:
    """Parses `8+`, `x86:4..` as a number of cores."""
    found = _NUMBER.fullmatch((lower_end(value) or "").rpartition(":")[2])
    if found is None:
        return None
    number = float(found[1])
    if number.is_integer():
        return int(number)
    return number


def parse_size(value: Any) -> str | None:
    """Parses `32+`, `16GB..`, `512MB` as a quantity; a bare number counts GiB, as in the other
    tool.
    """
    found = _NUMBER.fullmatch(lower_end(value) or "")
    if found is None:
        return None
    unit = (found[2] or "G")[0].upper()
    return f"{found[1]}{'K' if unit == 'K' else unit}i"


def is_size(text: str) -> bool:
    found = _NUMBER.fullmatch(lower_end(text) or "")
    return found is not None and found[2] is not None


def lines_for(
    source: ForeignMapping,
    key: str,
    text: str,
    known: Mapping[str, str],
    *,
    gpus: int,
    every: bool,
) -> list[str]:
    """Returns the lines that set the variables which the text uses, or every known one; adds a
    remark on `key` for variables without a counterpart. Each line has a default: on one node the
    variables of nodes are unset here.
    """
    used = dict.fromkeys(_WORD.findall(text))
    for name in used:
        if name not in known:
            source.say(key, f"uses `{name}`, which is not set here")
    wanted = [name for name in known if every or name in used]
    if wanted and not every:
        source.say(
            key, f"uses {_quote_names(wanted)}: set in its first lines from what is set here"
        )
    return [f'export {name}="{_expand_value(known[name], gpus)}"' for name in wanted]


def gpus_in(resources: Mapping[str, object]) -> int:
    """Returns the number of GPUs of a node, from `resources` of ours."""
    text = str(resources.get("gpu") or "")
    count = text.partition(":")[2] or "1"
    if text and count.isdigit():
        return int(count)
    return 0


def _expand_value(value: str, gpus: int) -> str:
    if value == _ALL_GPUS:
        return f"$(( {_NODES} * {gpus} ))"
    if value == _GPUS:
        return str(gpus)
    return value


def _quote_names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
