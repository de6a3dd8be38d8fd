"""Reads the runs' records from a pod's log, once no command can run in the pod any more. Pure; see
entry.py.
"""

from __future__ import annotations

import json

from fleetctl.providers.kubernetes.manifests.entry import (
    STORIES_WORD,
    TOLD_WORD,
    UNBEGUN_WORD,
)
from fleetctl.providers.remote.sandboxes.sandbox_protocol import StreamOffsets

_STORIES = b'\n{"e":"%s"}\n' % STORIES_WORD.encode()
_OF_THE_STREAM = ("outputs", "log", "alive", "eof", "lost", "unbegun")


def never_began(text: bytes) -> bool:
    """Returns whether the pod itself reports that no run ever began in it."""
    shown = _STORIES in text  # then there is output before it, with arbitrary text
    return not shown and any(_frame_word(line) == UNBEGUN_WORD for line in text.splitlines()[:1])


def frames_of(
    text: bytes,
    run: str,
    at: StreamOffsets,
) -> bytes:
    """Returns the frames of a run, from there on; b"" where the log does not know it.

    Lines of its journal that are there already are left out; output carries its own offset.
    """
    told: list[bytes] = []
    ours = False
    passed = 0
    for line in _entrypoint_lines(text).splitlines(keepends=True):
        word = _frame_word(line)
        if word == TOLD_WORD:
            ours = _frame_run(line) == run
            continue
        if not ours or not line.endswith(b"\n"):
            continue
        if word not in _OF_THE_STREAM:
            passed += len(line)
            if passed <= at.journal:
                continue
        told.append(line)
    return b"".join(told)


def _entrypoint_lines(text: bytes) -> bytes:
    """Returns the entrypoint's own lines, behind the output of programs, which is arbitrary text.
    The whole log, of a pod without output.
    """
    _, begins, stories = text.rpartition(_STORIES)
    if begins:
        return stories
    return text


def _frame_word(line: bytes) -> str:
    if not line.startswith(b'{"e":"'):
        return ""
    return line[6 : line.find(b'"', 6)].decode("ascii", "replace")


def _frame_run(line: bytes) -> str:
    try:
        return str(json.loads(line).get("run"))
    except ValueError:
        return ""
