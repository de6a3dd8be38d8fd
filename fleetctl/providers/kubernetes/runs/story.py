"""What a pod's log says of its runs once nothing can be run in it any more. Pure; see entry.py."""

from __future__ import annotations

import json

from fleetctl.providers.kubernetes.manifests.entry import TOLD_WORD, UNBEGUN_WORD
from fleetctl.providers.remote.sandboxes.base import At

_OF_THE_STREAM = ("log", "alive", "eof", "lost", "unbegun")


def never_began(text: bytes) -> bool:
    """Whether the pod itself says that no run ever began in it."""
    return any(_word(line) == UNBEGUN_WORD for line in text.splitlines()[:1])


def frames_of(text: bytes, run: str, at: At) -> bytes:
    """The frames of one run, from there on; empty where the log does not know it.

    Lines of its journal that are there already are left out; output says where it belongs.
    """
    told: list[bytes] = []
    ours, passed = False, 0
    for line in text.splitlines(keepends=True):
        word = _word(line)
        if word == TOLD_WORD:
            ours = _run(line) == run
            continue
        if not ours or not line.endswith(b"\n"):
            continue
        if word not in _OF_THE_STREAM:
            passed += len(line)
            if passed <= at.journal:
                continue
        told.append(line)
    return b"".join(told)


def _word(line: bytes) -> str:
    if not line.startswith(b'{"e":"'):
        return ""
    return line[6 : line.find(b'"', 6)].decode("ascii", "replace")


def _run(line: bytes) -> str:
    try:
        return str(json.loads(line).get("run"))
    except ValueError:
        return ""
