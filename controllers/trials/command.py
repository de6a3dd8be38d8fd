"""The command line of a trial: W&B's macros, as `wandb agent` expands them. Called by sweep.py.

`${envvar:NAME}` is replaced anywhere inside an element; every other macro is an element of its own.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DEFAULT_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
MACROS = (
    "env",
    "interpreter",
    "program",
    "args",
    "args_no_equals",
    "args_no_hyphens",
    "args_no_boolean_flags",
    "args_json",
    "args_json_file",
    "args_append_hydra",
    "args_override_hydra",
)

_VARIABLE = re.compile(r"\$\{envvar:([A-Z_][A-Z0-9_]*)\}")
_MACRO = re.compile(r"\$\{([^}]*)\}")


@dataclass(frozen=True, slots=True)
class _CommandWord:
    """One element of the command line. plain is None if its value is known in the sandbox only."""

    shell: str
    plain: str | None = None


def command_line(
    command: Sequence[str] | None,
    program: str | None,
    params: Mapping[str, Any],
    env: Mapping[str, str],
    *,
    params_file: str = "",
) -> list[str]:
    """Returns program and arguments.

    Values known only in the sandbox, variables that `env` lacks and the file of parameters when
    `params_file` is empty, are left to a POSIX shell there. An unset variable becomes its name, as
    W&B has it. An unknown macro becomes empty; the loader refuses those.
    """
    words: list[_CommandWord] = []
    for element in DEFAULT_COMMAND if command is None else command:
        macro = _MACRO.fullmatch(element)
        if macro is None or macro[1].startswith("envvar:"):
            words.append(_with_variables(element, env))
        elif macro[1] == "args_json_file" and not params_file:
            words.append(_CommandWord('"$FLEETCTL_PARAMS"'))
        else:
            words.extend(map(_quote_word, _expand_macro(macro[1], program, params, params_file)))
    plain = [word.plain for word in words if word.plain is not None]
    if len(plain) == len(words):
        return plain
    return ["/bin/sh", "-c", "exec " + " ".join(word.shell for word in words)]


def unknown_macros(command: Sequence[str]) -> list[str]:
    """Elements that W&B would silently drop."""
    found = [(element, _MACRO.fullmatch(element)) for element in command]
    return [
        element
        for element, macro in found
        if macro is not None and macro[1] not in MACROS and not macro[1].startswith("envvar:")
    ]


def _quote_word(text: str) -> _CommandWord:
    return _CommandWord(shlex.quote(text), text)


def _with_variables(element: str, env: Mapping[str, str]) -> _CommandWord:
    known = _VARIABLE.sub(lambda it: env.get(it[1], it[0]), element)
    if not any(it[1] not in env for it in _VARIABLE.finditer(element)):
        return _quote_word(known)
    shell = ""
    end = 0
    for it in _VARIABLE.finditer(element):
        shell += shlex.quote(element[end : it.start()]) if it.start() > end else ""
        shell += shlex.quote(env[it[1]]) if it[1] in env else f'"${{{it[1]}-{it[1]}}}"'
        end = it.end()
    return _CommandWord(shell + (shlex.quote(element[end:]) if end < len(element) else ""))


def _expand_macro(
    name: str,
    program: str | None,
    params: Mapping[str, Any],
    params_file: str,
) -> list[str]:
    match name:
        case "env":
            return ["/usr/bin/env"]
        case "interpreter":
            return ["python"]
        case "program":
            assert program, "the loader refuses `${program}` without a program"
            return [program]
        case "args_json_file":
            return [params_file]
    if name in _ARGUMENTS:
        return _ARGUMENTS[name](params)
    return []


def _list_true_flags(params: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in params.items():
        if value is not False:
            words.append(f"--{name}" if value is True else f"--{name}={value}")
    return words


_ARGUMENTS: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "args": lambda params: [f"--{name}={value}" for name, value in params.items()],
    "args_no_equals": lambda params: [
        word for name, value in params.items() for word in (f"--{name}", str(value))
    ],
    "args_no_hyphens": lambda params: [f"{name}={value}" for name, value in params.items()],
    "args_no_boolean_flags": _list_true_flags,
    "args_json": lambda params: [json.dumps(dict(params))],
    "args_append_hydra": lambda params: [f"+{name}={value}" for name, value in params.items()],
    "args_override_hydra": lambda params: [f"++{name}={value}" for name, value in params.items()],
}
