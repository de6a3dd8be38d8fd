"""Label selectors: `team=rlm,stage!=test,tier in (a,b)`, read and matched. Pure."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import NamedTuple

_COMMA = re.compile(r",(?![^()]*\))")  # not one between brackets


_SET = re.compile(r"(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)")


class LabelTerm(NamedTuple):
    """One part of a label selector."""

    key: str
    op: str  # "in", "notin", "exists" or "absent"; `=` and `!=` are sets with one member
    values: tuple[str, ...] = ()


def parse_selector(text: str) -> tuple[LabelTerm, ...]:
    """Parses `team=rlm,stage!=test,gpu,!old,tier in (a,b)`: all must hold. Raises
    ArgumentTypeError."""
    terms = tuple(_parse_term(part.strip()) for part in _COMMA.split(text))
    if not all(is_label(word) for term in terms for word in (term.key, *term.values)):
        raise argparse.ArgumentTypeError(
            f"`{text}` is not a label selector; write it as team=rlm,stage!=test,tier in (a,b)"
        )
    return terms


def is_label(text: str) -> bool:
    """Returns true for a valid name of a label."""
    return bool(text) and all(char.isalnum() or char in "-_./" for char in text)


def label_keys(text: str) -> list[str]:
    """Parses `team,stage`, names of labels. Raises ArgumentTypeError."""
    keys = [part.strip() for part in text.split(",")]
    if not all(map(is_label, keys)):
        raise argparse.ArgumentTypeError(f"`{text}` does not name labels; write them as team,stage")
    return keys


def _parse_term(part: str) -> LabelTerm:
    if found := _SET.fullmatch(part):
        values = tuple(value.strip() for value in found["values"].split(","))
        return LabelTerm(found["key"], found["op"], values)
    for written, op in (("!=", "notin"), ("==", "in"), ("=", "in")):
        key, found_one, value = part.partition(written)
        if found_one:
            return LabelTerm(key.strip(), op, (value.strip(),))
    if part.startswith("!"):
        return LabelTerm(part[1:].strip(), "absent")
    return LabelTerm(part, "exists")


def matches_labels(labels: dict[str, str], terms: Sequence[LabelTerm]) -> bool:
    """Returns true where labels match, by kubectl's rule: an object without the label is also
    outside of every set."""
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
