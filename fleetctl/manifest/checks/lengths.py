"""Texts that no program can be begun with: Linux takes 128 KiB for one argument or variable, and a
script is an argument of its shell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from fleetctl.common.finding import Finding, Path
from fleetctl.controllers.trials.command import DEFAULT_COMMAND
from fleetctl.guest.task.parameters import VARIABLE_BYTES_MAX
from fleetctl.manifest.checks import spec_parts
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.values.scalars import Spec

ARGUMENT_BYTES_MAX = VARIABLE_BYTES_MAX
IN_A_FILE = "have it in a file of the source, and name that"
# Macros that hand values over as arguments; `${args_json_file}` names a file.
_ARGUMENTS = re.compile(r"\$\{args(?!_json_file)\w*\}")


def find_problems(spec: Spec) -> Iterator[Finding]:
    for at, text in (*spec_parts.values_of(spec, "script"), *_scripts_of_services(spec)):
        yield from _too_long(at, text, "a shell takes", "have it in a file of the source")
    for at, words in spec_parts.list_commands(spec):
        for number, word in enumerate(words):
            yield from _too_long((*at, number), word, "an argument takes", IN_A_FILE)
    for at, variables in (*spec_parts.list_environments(spec), *_environments_of_services(spec)):
        for name, value in variables.items():
            yield from _too_long((*at, name), f"{name}={value}", "a variable takes", IN_A_FILE)
    if isinstance(spec, SweepSpec):
        yield from _check_arguments(spec)


def _too_long(
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
            yield from _too_long(at, f"--{name}={text}", "an argument takes", hint)
