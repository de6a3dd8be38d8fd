"""Commands that ask nothing of the shell which they are given to, but to become a Python program.

Here that is done without the shell, because a box starts Python in a fifth of the time where it is
asked for it directly (boxes/inner/become.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# As `shlex.join` writes words: nothing in them means anything to a shell.
_WORD = r"(?:[A-Za-z0-9_@%+=:,./-]++|'[^']*+'|\"'\")++"
_COMMAND = re.compile(
    rf"exec (?P<words>python3?(?: {_WORD})*+)(?P<dropped>(?: (?:<|>|2>)/dev/null)*+)"
)
_PART = re.compile(r"[^'\"]+|'([^']*)'|\"(')\"")
_CHANGING = {"BASH_ENV", "SHLVL"}  # what the shell reads first, and what it counts


@dataclass(frozen=True, slots=True)
class Plain:
    """What is left of the shell: its words, and which of the two streams go nowhere."""

    argv: Sequence[str]
    env: Mapping[str, str]
    drops_out: bool
    drops_err: bool


def plain(command: str, *, shell: str, cwd: str, env: Mapping[str, str]) -> Plain | None:
    """None when the command needs a shell, or when the shell would do more than run it.

    env: of the process, whole.
    """
    found = _COMMAND.fullmatch(command)
    if found is None or os.path.basename(shell) != "bash" or _CHANGING & set(env):
        return None
    dropped = found["dropped"].split()
    return Plain(
        argv=[_unquoted(word) for word in re.findall(_WORD, found["words"])],
        # What the shell leaves there, but for `_`, when it becomes another program.
        env={"PWD": cwd, "SHLVL": "0"},
        drops_out=">/dev/null" in dropped,
        drops_err="2>/dev/null" in dropped,
    )


def _unquoted(word: str) -> str:
    """What the shell makes of a word of ours; `shlex.split` takes as long as the rest of a call."""
    return _PART.sub(lambda part: part[part.lastindex] if part.lastindex else part[0], word)
