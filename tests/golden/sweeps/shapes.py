"""The sweep files of shapes.yaml, each as it would lie on somebody's disk."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fleetctl.manifest.yaml.reader import read_yaml
from fleetctl.manifest.yaml.wandb import WANDB

FILE = Path(__file__).with_name("shapes.yaml")
_HEAD = re.compile(r"^# (valid|refused): (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Shape:
    text: str
    about: str
    valid: bool
    search: Any


@cache
def shapes() -> dict[str, Shape]:
    """By the names that oracle.py gives them."""
    found = {}
    for at, text in enumerate(FILE.read_text().split("\n---\n")):
        head = _HEAD.search(text)
        assert head is not None
        (root,) = read_yaml("shapes.yaml", text, dialect=WANDB).roots
        found[f"shape {at + 1}"] = Shape(text, head[2], head[1] == "valid", root.value)
    return found
