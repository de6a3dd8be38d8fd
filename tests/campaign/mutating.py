"""Mutates valid manifests at random: bytes, lines, words and whole parts. Used by manifests.py."""

from __future__ import annotations

import copy
import json
import marshal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.manifest.yaml.reader import read_yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("specs/examples", "fleetctl/cli/learn/starters", "tests/golden/cli/manifests")
CHANGES_MAX = 4
# Values that a field may not expect, by themselves and in place of any other.
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 0.5, -0.0, 1e308, 1e-320, "", " ",
    "x" * 300, "x" * 70_000, "a/b", "../../etc/passwd", "/", "/tmp", "/proc/self/mem", "/dev/zero",
    "${{ name }}", "${{ unknown }}", "${{", "${checkpoint}", "${args}", "$(id)", "a\nb", "a\0b",
    "\ud83d\ude00", "\u202eab", "\x1b[2J", "ключ", "NaN", "inf", "1e5", "0x10", "0o17", "1:30",
    "5m", "1h30m", "-5s", "10GB", "1.5Gi", "A100:0", "A100:9999999999", "H100", "1-0", "1-99999999",
    "step:1", "file:///", "s3://b/p", "https://x.example/y.git", "git@x:y", "job/x", "sweep/",
    "2026-02-30", "* * * * *", "61 * * * *", "Europe/Nowhere", "(a+)+$", "*a" * 12 + "b", "[",
    "(?P<", "count > 0", "object.spec.x == 1", [], {}, [[]], [{}], [None], {"": ""},
    {"a": {"a": {}}}, [0] * 2_000, {f"k{n}": n for n in range(500)}, ["x"] * 50, {"name": "x"},
    [{"name": "x"}] * 2,
)  # fmt: skip
WORDS = (
    b"- ", b": ", b"\n", b"  ", b"{", b"}", b"[", b"]", b"&a ", b"*a ", b"<<: *a\n", b"!!str ",
    b"|\n", b">-\n", b"#", b"'", b'"', b"---\n", b"...\n", b"%YAML 1.1\n", b"? ", b"~", b"\t",
    b"\r", b"\0", b"\xff", b"\xef\xbb\xbf", b"\xc2\x85", b"\xed\xa0\x80", b"null", b"${{ ",
    b" }}", b"kind: ", b"spec:\n", b"metadata: {name: x}\n",
    b"apiVersion: fleetctl.dev/v1alpha1\n",
)  # fmt: skip


@cache
def corpus() -> tuple[bytes, ...]:
    """Texts of manifests, each of one file."""
    paths = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.yaml")))
    return tuple(path.read_bytes() for path in paths)


@cache
def _trees() -> tuple[bytes, ...]:
    """The same, as lists of documents by `marshal`, which makes a copy in a tenth of deepcopy's
    time.
    """
    readings = (read_yaml("x.yaml", it.decode()) for it in corpus())
    return tuple(
        marshal.dumps([root.value for root in it.roots]) for it in readings if not it.problems
    )


def mutated(dice: Random) -> bytes:
    """One manifest, of one to CHANGES_MAX changes."""
    if dice.random() < 0.4:
        return _text(dice)
    documents = marshal.loads(dice.choice(_trees()))
    for _ in range(dice.randint(1, CHANGES_MAX)):
        _change_tree(documents, dice)
    text = "---\n".join(_written(it, dice) for it in documents)
    return text.encode("utf-8", "surrogatepass")


def _written(document: Any, dice: Random) -> str:
    if dice.random() < 0.3:
        return json.dumps(document) + "\n"
    return to_yaml(document)


def _text(dice: Random) -> bytes:
    text = dice.choice(corpus())
    for _ in range(dice.randint(1, CHANGES_MAX)):
        text = dice.choice(_TEXT_CHANGES)(text, dice)
    return text


def _flip(text: bytes, dice: Random) -> bytes:
    at = dice.randrange(len(text) or 1)
    return text[:at] + bytes([dice.randrange(256)]) + text[at + 1 :]


def _insert(text: bytes, dice: Random) -> bytes:
    at = dice.randrange(len(text) + 1)
    return text[:at] + dice.choice(WORDS) * dice.choice((1, 1, 1, 3, 200)) + text[at:]


def _cut(text: bytes, dice: Random) -> bytes:
    at = dice.randrange(len(text) + 1)
    return text[:at] + text[at + dice.choice((1, 1, 5, 50, 10_000)) :]


def _move_line(text: bytes, dice: Random) -> bytes:
    lines = text.splitlines(keepends=True) or [b""]
    taken = lines[dice.randrange(len(lines))]
    if dice.random() < 0.5:
        lines.remove(taken)
    lines.insert(dice.randrange(len(lines) + 1), b" " * dice.choice((0, 0, 2, 4)) + taken)
    return b"".join(lines)


def _join(text: bytes, dice: Random) -> bytes:
    other = dice.choice(corpus())
    at, theirs = dice.randrange(len(text) + 1), dice.randrange(len(other) + 1)
    return text[:at] + other[theirs:]


_TEXT_CHANGES: tuple[Callable[[bytes, Random], bytes], ...] = (
    _flip,
    _insert,
    _insert,
    _cut,
    _move_line,
    _move_line,
    _join,
)


def _change_tree(documents: list[Any], dice: Random) -> None:
    """Replaces, removes, repeats or renames something in a document, or takes it from another."""
    holder, key = _place(documents, dice)
    match dice.choice(("odd", "odd", "wrap", "remove", "repeat", "rename", "take")):
        case "odd":
            holder[key] = copy.deepcopy(dice.choice(ODD))
        case "wrap":
            holder[key] = dice.choice(([holder[key]], {"x": holder[key]}, str(holder[key])))
        case "remove":
            del holder[key]
        case "repeat" if isinstance(holder, list):
            holder.insert(dice.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
        case "rename" if isinstance(holder, dict):
            names = [str(key).upper(), f"{key}s", "", "x-y", *(it for it in holder if it != key)]
            holder[dice.choice(names)] = holder.pop(key)
        case _:
            theirs, wanted = _place(marshal.loads(dice.choice(_trees())), dice)
            holder[key] = theirs[wanted]
    if not documents:
        documents.append(None)


def _place(tree: list[Any], dice: Random) -> tuple[Any, Any]:
    """Returns (the container, the key) of a random node in a tree that is not empty."""
    holder: Any = tree
    key: Any = dice.randrange(len(tree))
    while isinstance(holder[key], dict | list) and holder[key] and dice.random() < 0.8:
        holder = holder[key]
        key = dice.choice(list(holder)) if isinstance(holder, dict) else dice.randrange(len(holder))
    return holder, key
