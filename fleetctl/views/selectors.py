"""Label selectors: `team=rlm,stage!=test,tier in (a,b)`, read and matched. Pure."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import NamedTuple

_COMMA = re.compile(r",(?![^()]*\))")  # not one between brackets


_SET = re.compile(r"(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)")


class Term(NamedTuple):
    """One part of a label selector."""

    key: str
    op: str  # "in", "notin", "exists" or "absent"; `=` and `!=` are sets of one
    values: tuple[str, ...] = ()


def selector(text: str) -> tuple[Term, ...]:
    """`team=rlm,stage!=test,gpu,!old,tier in (a,b)`: all must hold. Raises ArgumentTypeError."""
    terms = tuple(_term(part.strip()) for part in _COMMA.split(text))
    if not all(is_label(word) for term in terms for word in (term.key, *term.values)):
        raise argparse.ArgumentTypeError(
            f"`{text}` is not a label selector; write it as team=rlm,stage!=test,tier in (a,b)"
        )
    return terms


def is_label(text: str) -> bool:
    """Whether a label can be called so."""
    return bool(text) and all(char.isalnum() or char in "-_./" for char in text)


def label_keys(text: str) -> list[str]:
    """`team,stage`, names of labels. Raises ArgumentTypeError."""
    keys = [part.strip() for part in text.split(",")]
    if not all(map(is_label, keys)):
        raise argparse.ArgumentTypeError(f"`{text}` does not name labels; write them as team,stage")
    return keys


def _term(part: str) -> Term:
    if found := _SET.fullmatch(part):
        values = tuple(value.strip() for value in found["values"].split(","))
        return Term(found["key"], found["op"], values)
    for written, op in (("!=", "notin"), ("==", "in"), ("=", "in")):
        key, found_one, value = part.partition(written)
        if found_one:
            return Term(key.strip(), op, (value.strip(),))
    return Term(part[1:].strip(), "absent") if part.startswith("!") else Term(part, "exists")


def matches(labels: dict[str, str], terms: Sequence[Term]) -> bool:
    """Whether labels match, as kubectl has it: what lacks the label is also not one of a set."""
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
