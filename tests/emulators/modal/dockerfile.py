"""Dockerfile commands, as the SDK writes them, one parsed instruction per command. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

DEFAULT_SHELL = ("/bin/sh", "-c")
_DOLLAR = "\0"  # one that is none of a variable, until all are replaced


@dataclass(frozen=True, slots=True)
class Instruction:
    verb: str  # upper case
    rest: str


@dataclass(slots=True)
class ImageConfig:
    """What an image says about the processes that run on it."""

    env: dict[str, str] = field(default_factory=dict)
    workdir: str = ""
    entrypoint: list[str] = field(default_factory=list)
    cmd: list[str] = field(default_factory=list)
    shell: tuple[str, ...] = DEFAULT_SHELL

    def copy(self) -> ImageConfig:
        return ImageConfig(
            dict(self.env), self.workdir, list(self.entrypoint), list(self.cmd), self.shell
        )


def parse(lines: Iterable[str]) -> list[Instruction]:
    """Joins continued lines and drops comments."""
    text = "\n".join(lines)
    text = re.sub(r"\\[ \t]*\n", " ", text)
    found = []
    for line in text.split("\n"):
        line = line.strip()
        if line and not line.startswith("#"):
            verb, _, rest = line.partition(" ")
            found.append(Instruction(verb.upper(), rest.strip()))
    return found


def words(rest: str) -> list[str] | None:
    """The exec form `["a", "b"]`; None when it is the shell form."""
    if not rest.startswith("["):
        return None
    try:
        listed = json.loads(rest)
    except ValueError:
        return None
    return [str(word) for word in listed]


def command(rest: str, shell: Iterable[str]) -> list[str]:
    listed = words(rest)
    return [*shell, rest] if listed is None and rest else listed or []


def apply_to(config: ImageConfig, step: Instruction, build_args: Mapping[str, str]) -> bool:
    """Change `config` by an instruction that only concerns it. False when it is of another sort."""
    match step.verb:
        case "ENV":
            config.env |= _pairs(step.rest, {**build_args, **config.env})
        case "WORKDIR":
            path = _expanded(step.rest.strip("\"'"), config.env).replace(_DOLLAR, "$")
            config.workdir = path if path.startswith("/") else f"{config.workdir}/{path}"
        case "ENTRYPOINT":
            config.entrypoint = command(step.rest, config.shell)
        case "CMD":
            config.cmd = command(step.rest, config.shell)
        case "SHELL":
            config.shell = tuple(words(step.rest) or DEFAULT_SHELL)
        case "FROM" | "ARG" | "LABEL" | "EXPOSE" | "USER" | "STOPSIGNAL" | "MAINTAINER":
            return True
        case _:
            return False
    return True


def _pairs(rest: str, known: Mapping[str, str]) -> dict[str, str]:
    """`A=1 B="x y"`, or the old form `A the rest`."""
    first, _, value = rest.partition(" ")
    if "=" not in first:
        return {first: _expanded(value.strip(), known).replace(_DOLLAR, "$")}
    pairs = (word.partition("=") for word in shlex.split(_expanded(rest, known)))
    return {name: value.replace(_DOLLAR, "$") for name, _, value in pairs}


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """Variables by their values, except between single quotes."""

    def value(found: re.Match[str]) -> str:
        if found["quoted"]:
            return found["quoted"].replace("$", _DOLLAR)
        return known.get(found["name"] or found["plain"], "").replace("$", _DOLLAR)

    pattern = r"(?P<quoted>'[^']*')|\$(?:\{(?P<name>\w+)\}|(?P<plain>\w+))"
    return re.sub(pattern, value, text)
