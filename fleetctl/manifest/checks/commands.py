"""Finds words of a command line that only a shell, or a macro, would expand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from fleetctl.common.finding import Finding, Path
from fleetctl.controllers.trials.command import MACROS
from fleetctl.guest.task.parameters import variable
from fleetctl.manifest.checks import spec_parts
from fleetctl.manifest.problems import shorten_text, yaml_text
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.values.scalars import Spec

# Programs that read a program of their own: from their first argument, or behind a flag for it.
_FILTERS = frozenset({"awk", "gawk", "mawk", "sed", "jq", "envsubst", "expr", "find", "yq"})
_READERS = re.compile(r"(?:ba|da|z|k|fi|a)?sh|perl|ruby|node|(?:python|pypy)[0-9.]*|xonsh|pwsh")
_FLAG = re.compile(r"-[A-Za-z]*[ce]|--(?:command|eval)")
_OPERATORS = frozenset(
    {"&&", "||", "|", ";", "&", ">", ">>", "<", "<<", "2>", "2>>", "2>&1", "&>", ">&2", "|&"}
)
_MACRO = re.compile(r"\$\{([^}]*)\}|\{\{\s*([^}]*?)\s*\}\}|\$\(([A-Za-z_]\w*)\)|\$([A-Za-z_]\w*)")
_WHOLE = re.compile(r"(?:--?[\w.-]+=)?(?:\$\{[^}]*\}|\{\{[^}]*\}\}|\$\([A-Za-z_]\w*\))")
_SCRIPT = re.compile(r"(?!/)[\w./-]+\.(?:py|sh|R|jl|pl|js|rb)")
_OURS = ("TASK_", "FLEETCTL_", "JOB_COMPLETION_INDEX")

Words = Sequence[tuple[int, str]]


def find_problems(spec: Spec) -> Iterator[Finding]:
    commands = list(spec_parts.list_commands(spec))
    if not commands:
        return
    params = {name for _, name in spec_parts.list_parameters(spec)}
    names = {name for _, variables in spec_parts.list_environments(spec) for name in variables}
    names |= {name for _, service in spec_parts.list_services(spec) for name in service.env}
    for path, command in commands:
        words = _plain_words(command)
        yield from _of_a_shell(path, command, words)
        if getattr(spec, "params_from", None) is not None:
            words = [(at, word) for at, word in words if not _is_expanded(word)]
        yield from _check_macros(
            path,
            words,
            params,
            names,
            sweep=isinstance(spec, SweepSpec),
        )


def list_programs(spec: Spec) -> Iterator[str]:
    """Files that commands run by a relative path, such as `train.py`: below `source`, where there
    is one.
    """
    for _, command in spec_parts.values_of(spec, "command"):
        first = next((word for _, word in _plain_words(command) if _SCRIPT.fullmatch(word)), "")
        if first:
            yield str(PurePosixPath(first))
    if isinstance(spec, SweepSpec) and _SCRIPT.fullmatch(spec.search.program or ""):
        yield str(PurePosixPath(spec.search.program or ""))


def holds_a_reference(command: Sequence[str]) -> bool:
    """Returns True if a word that no program reads as a program looks like a reference, as
    `$(NAME)`.
    """
    return any(_MACRO.search(word) for _, word in _plain_words(command))


def _plain_words(command: Sequence[str]) -> Words:
    """Returns the words that no program reads as a program, each with its position."""
    plain: list[tuple[int, str]] = []
    reader = False
    for number, word in enumerate(command):
        name = PurePosixPath(word).name
        if name in _FILTERS or (reader and _FLAG.fullmatch(word)):
            break
        reader = reader or _READERS.fullmatch(name) is not None
        plain.append((number, word))
    return plain


def _of_a_shell(
    path: Path,
    command: Sequence[str],
    words: Words,
) -> Iterator[Finding]:
    """One finding a command: the way out is the same for all of its words."""
    text = " ".join(command)
    script = f"write `script: {yaml_text(text)}`"
    for number, word in words:
        if word in _OPERATORS:
            at = (*path, number)
            message = f" is `{word}`, which only a shell would read, and no shell reads a command"
            yield Finding(at, message, script)
            return
    program = command[0]
    if any(it.isspace() for it in program.strip()) and not program.startswith(("/", "./", "../")):
        at = (*path, 0)
        message = f" is `{shorten_text(program)}`, which would be the name of one program"
        shell = any(it in program for it in "|&;<>$`\"'")
        # A whole number in a command is its text.
        listed = ", ".join(it if it.isdigit() else yaml_text(it) for it in text.split())
        yield Finding(at, message, script if shell else f"write `[{listed}]`")


def _check_macros(
    path: Path,
    words: Words,
    params: set[str],
    names: set[str],
    *,
    sweep: bool,
) -> Iterator[Finding]:
    for number, word in words:
        for match in _MACRO.finditer(word):
            name = next((it for it in match.groups() if it is not None), "")
            plain = name.partition(":")[2] if name.startswith("envvar:") else name
            known = plain in params | names or plain in MACROS or plain.startswith(_OURS)
            if not known and not (_WHOLE.fullmatch(word) and match[4] is None):
                continue
            at = (*path, number)
            message = f" holds `{shorten_text(match[0])}`, which stays as it is: nothing expands it"
            yield Finding(at, message, _suggest_fix(plain, params, names, sweep=sweep))
            break


def _is_expanded(word: str) -> bool:
    """Returns True for a macro that the parameters of a sweep's best trial replace."""
    name = word.removeprefix("${").removesuffix("}")
    return word == f"${{{name}}}" and name in MACROS and name != "program"


def _suggest_fix(
    name: str,
    params: set[str],
    names: set[str],
    *,
    sweep: bool,
) -> str:
    if sweep and (name in MACROS or name in params):
        return "move `command` into `search`, where W&B's macros such as `${args}` are expanded"
    if name in names or name.startswith(_OURS):
        return f"use `script`, where a shell expands `${name}`"
    if name in params:
        return f"use `script`, where `${variable(name)}` is the parameter `{name}`"
    return "use `script`, where a shell expands variables; a parameter `x` is `$TASK_X` there"
