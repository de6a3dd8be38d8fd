"""Dockerfiles, as far as the SDK's image builder and plain ones go: text to instructions."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass

KNOWN = frozenset(
    [
        "FROM",
        "RUN",
        "COPY",
        "ADD",
        "ENV",
        "WORKDIR",
        "ENTRYPOINT",
        "CMD",
        "ARG",
        "USER",
        "EXPOSE",
        "LABEL",
        "VOLUME",
        "SHELL",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "MAINTAINER",
        "ONBUILD",
    ]
)
# What needs a distribution's package manager is said to be done and is not: the machine that the
# emulator runs on is everybody's base image.
_DISTRIBUTION = re.compile(r"\b(apt-get|apt|dpkg|debconf-set-selections|apk|yum|dnf)\b")
_PIP = re.compile(r"^(?:(?:python[\d.]*|/\S*python[\d.]*) -m )?(?:uv )?pip[\d.]* install\b\s*")


class Malformed(Exception):
    """The text is no Dockerfile; the message says why."""


@dataclass(frozen=True, slots=True)
class Instruction:
    word: str
    rest: str

    @property
    def text(self) -> str:
        return f"{self.word} {self.rest}".rstrip()


def parse(text: str) -> list[Instruction]:
    found = []
    for line in _logical_lines(text):
        word, _, rest = line.strip().partition(" ")
        if word.upper() not in KNOWN:
            raise Malformed(f"dockerfile parse error: unknown instruction: {word}")
        found.append(Instruction(word.upper(), rest.strip()))
    if not found or found[0].word not in ("FROM", "ARG"):
        raise Malformed("dockerfile parse error: no build stage in current context")
    return found


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending = ""
    for raw in text.splitlines():
        line = raw.rstrip()
        if line.lstrip().startswith("#") or (not line.strip() and not pending):
            continue
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        lines.append(pending + line)
        pending = ""
    return lines + ([pending] if pending.strip() else [])


def words(rest: str) -> list[str]:
    """The JSON form, or the words of a line."""
    if rest.startswith("["):
        try:
            return [str(word) for word in json.loads(rest)]
        except ValueError:
            pass
    return shlex.split(rest)


def command(rest: str) -> tuple[str, ...]:
    """What ENTRYPOINT, CMD and RUN start: the JSON form as it is, a line in a shell."""
    if rest.startswith("["):
        try:
            return tuple(str(word) for word in json.loads(rest))
        except ValueError:
            pass
    return ("/bin/sh", "-c", rest) if rest else ()


def assignments(rest: str) -> dict[str, str]:
    parts = shlex.split(rest)
    if parts and "=" not in parts[0]:
        return {parts[0]: rest.split(None, 1)[1] if len(parts) > 1 else ""}
    return dict(part.partition("=")[::2] for part in parts if "=" in part)


@dataclass(frozen=True, slots=True)
class Step:
    """One part of a RUN line: `pip` with its arguments, `shell`, or `skip`."""

    kind: str
    text: str


def steps(rest: str) -> list[Step]:
    """A RUN line in the parts that need to be told apart; one shell step when none does."""
    if rest.startswith("["):
        return [Step("shell", shlex.join(command(rest)))]
    parts = [part.strip() for part in rest.split("&&")]
    texts = [_step(part) for part in parts if part]
    return [Step("shell", rest)] if all(one.kind == "shell" for one in texts) else texts


def _step(part: str) -> Step:
    if _DISTRIBUTION.search(part):
        return Step("skip", part)
    pip = _PIP.match(part)
    if pip is None:
        return Step("shell", part)
    wanted = part[pip.end() :]
    return (
        Step("skip", part) if wanted.strip() in ("--upgrade pip", "-U pip") else Step("pip", wanted)
    )
