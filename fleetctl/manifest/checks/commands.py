"""Words of a command line that only a shell, or a macro, would make something of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from controllers.command import MACROS
from fleetctl.manifest.checks import works
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.problems import Path, shortened
from specs.scalars import Spec
from specs.sweep import SweepSpec

# Programs that read a program of their own from their arguments.
_READERS = re.compile(
    r"(?:ba|da|z|k|fi)?sh|g?awk|sed|jq|perl|ruby|node|envsubst|(?:python|pypy)[0-9.]*|xonsh|pwsh"
)
_OPERATORS = frozenset(
    {"&&", "||", "|", ";", "&", ">", ">>", "<", "<<", "2>", "2>>", "2>&1", "&>", ">&2", "|&"}
)
_MACRO = re.compile(r"\$\{([^}]*)\}|\{\{\s*([^}]*?)\s*\}\}|\$\(([A-Za-z_]\w*)\)|\$([A-Za-z_]\w*)")
_WHOLE = re.compile(r"(?:--?[\w.-]+=)?(?:\$\{[^}]*\}|\{\{[^}]*\}\}|\$\([A-Za-z_]\w*\))")
_OURS = ("TASK_", "FLEETCTL_", "JOB_COMPLETION_INDEX")


def wrong(spec: Spec) -> Iterator[Finding]:
    names = {name for _, name in works.parameters(spec)}
    names |= {name for _, variables in works.environments(spec) for name in variables}
    for path, command in works.said(spec, "command"):
        if any(_reads_a_program(word) for word in command):
            continue
        yield from _of_a_shell(path, command)
        yield from _macros(path, command, names, sweep=isinstance(spec, SweepSpec))


def _reads_a_program(word: str) -> bool:
    return _READERS.fullmatch(PurePosixPath(word).name) is not None and word != "sed"


def _of_a_shell(path: Path, command: Sequence[str]) -> Iterator[Finding]:
    """One finding a command: the way out is the same for all of its words."""
    for number, word in enumerate(command):
        if word in _OPERATORS:
            yield _finding(path, number, word, "a shell would read, and there is none", command)
            return
    program = command[0]
    if any(it.isspace() for it in program.strip()) and not program.startswith(("/", "./", "../")):
        yield _finding(path, 0, program, "one word, the name of a program", command)


def _finding(path: Path, number: int, word: str, what: str, command: Sequence[str]) -> Finding:
    at = (*path, number)
    text = shortened(" ".join(command))
    hint = f"write `script: {text}`"
    if number == 0 and not any(it in word for it in "|&;<>$`\"'"):
        hint = f"write `[{', '.join(shortened(' '.join(command)).split())}]`"
    return Finding(at, at, f" is `{shortened(word)}`, which is {what}", hint)


def _macros(
    path: Path, command: Sequence[str], names: set[str], *, sweep: bool
) -> Iterator[Finding]:
    for number, word in enumerate(command):
        for match in _MACRO.finditer(word):
            name = next((it for it in match.groups() if it is not None), "")
            plain = name.partition(":")[2] if name.startswith("envvar:") else name
            known = plain in names or plain in MACROS or plain.startswith(_OURS)
            if not known and not (_WHOLE.fullmatch(word) and match[4] is None):
                continue
            at = (*path, number)
            said = f" holds `{shortened(match[0])}`, which stays as it is: nothing expands it"
            yield Finding(at, at, said, _way(plain, names, sweep=sweep))
            break


def _way(name: str, names: set[str], *, sweep: bool) -> str:
    if sweep and (name in MACROS or name in names):
        return "move `command` into `search`, where W&B's macros such as `${args}` are expanded"
    variable = name if name.startswith(_OURS) else "TASK_NAME"
    return (
        f"use `script`, where `${variable}` is"
        f" {'expanded' if variable == name else 'the parameter NAME'}"
    )
