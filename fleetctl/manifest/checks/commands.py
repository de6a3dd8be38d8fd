"""Finds words of a command line that only a shell, or a macro, would expand, and texts that are too
long to begin a program with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from fleetctl.common.finding import Finding, Path
from fleetctl.controllers.trials.command import DEFAULT_COMMAND, MACROS
from fleetctl.guest.task.parameters import VARIABLE_BYTES_MAX, name_variable
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

ARGUMENT_BYTES_MAX = VARIABLE_BYTES_MAX
IN_A_FILE = "have it in a file of the source, and name that"
# Macros that hand values over as arguments; `${args_json_file}` names a file.
_ARGUMENTS = re.compile(r"\$\{args(?!_json_file)\w*\}")


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
        return f"use `script`, where `${name_variable(name)}` is the parameter `{name}`"
    return "use `script`, where a shell expands variables; a parameter `x` is `$TASK_X` there"


def find_overlong(spec: Spec) -> Iterator[Finding]:
    for at, text in (*spec_parts.values_of(spec, "script"), *_scripts_of_services(spec)):
        yield from _find_too_long(at, text, "a shell takes", "have it in a file of the source")
    for at, words in spec_parts.list_commands(spec):
        for number, word in enumerate(words):
            yield from _find_too_long((*at, number), word, "an argument takes", IN_A_FILE)
    for at, variables in (*spec_parts.list_environments(spec), *_environments_of_services(spec)):
        for name, value in variables.items():
            yield from _find_too_long((*at, name), f"{name}={value}", "a variable takes", IN_A_FILE)
    if isinstance(spec, SweepSpec):
        yield from _check_arguments(spec)


def _find_too_long(
    at: Path,
    text: str,
    takes: str,
    hint: str,
) -> Iterator[Finding]:
    if 4 * len(text) <= ARGUMENT_BYTES_MAX:
        return  # a character has four bytes at most
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > ARGUMENT_BYTES_MAX:
        message = f" has {size:,} bytes, and {takes} {ARGUMENT_BYTES_MAX:,} at most"
        yield Finding(at, message, hint)


def _scripts_of_services(spec: Spec) -> Iterator[tuple[Path, str]]:
    for at, service in spec_parts.list_services(spec):
        if service.script is not None:
            yield (*at, "script"), service.script


def _environments_of_services(spec: Spec) -> Iterator[tuple[Path, Mapping[str, str]]]:
    for at, service in spec_parts.list_services(spec):
        yield (*at, "env"), service.env


def _check_arguments(spec: SweepSpec) -> Iterator[Finding]:
    """Values of a search that its command gets as arguments."""
    search = spec.search
    words = search.command or (DEFAULT_COMMAND if search.program else ())
    if not any(_ARGUMENTS.search(str(word)) for word in words):
        return
    for name, given in (search.parameters or {}).items():
        values = given.get("values") if isinstance(given, dict) else None
        for number, value in enumerate(values if isinstance(values, list) else ()):
            at: Path = ("spec", "search", "parameters", name, "values", number)
            text = value if isinstance(value, str) else json.dumps(value)
            hint = "have the program read `$TASK_...`, or `${args_json_file}`"
            yield from _find_too_long(at, f"--{name}={text}", "an argument takes", hint)
