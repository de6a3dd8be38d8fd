"""Flags that describe work: their fields in a manifest, and errors about it that name the flags.

Called by run_manifest.py for a command, and by the verbs that take a bare W&B sweep file.
"""

from __future__ import annotations

import argparse
import re
import shlex
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fleetctl.cli.command.flags import Parser, parse_count, parse_money
from fleetctl.cli.targets.files import COMMAND_LINE, SweepFields
from fleetctl.common.errors import FleetctlError
from fleetctl.manifest.plain_scalars import resolve_scalar

if TYPE_CHECKING:
    from fleetctl.manifest.problems import ManifestProblem

# Flags, by the field that each gives. The deepest first: the first that fits is named.
_FLAGS = {
    "spec.template.resources.gpu": "--gpu",
    "spec.template.resources.cpu": "--cpu",
    "spec.template.resources.memory": "--memory",
    "spec.template.image.pip": "--pip",
    "spec.template.image.python": "--python",
    "spec.template.image.registry": "--image",
    "spec.template.source.path": "--source",
    "spec.template.timeoutSeconds": "--timeout",
    "spec.template.secrets": "--secret",
    "spec.template.volumes": "--volume",
    "spec.template.env": "--env",
    "spec.template.command": "COMMAND",
    "spec.template.script": "COMMAND",
    "spec.tasks": "--each",
    "spec.parallelism": "--parallelism",
    "spec.trials": "--trials",
    "spec.placement.provider": "--on",
    "spec.placement": "--on",
    "spec.nodes": "--nodes",
    "spec.backoffLimitPerIndex": "--retries",
    "spec.maxRestarts": "--retries",
    "spec.budget.maxCost": "--budget",
    "metadata.name": "--name",
}
_FIELD = re.compile("|".join(rf"{re.escape(it)}(?:\[\d+\]|\.\w+)*(?!\w)" for it in _FLAGS))
_PREFIX = re.compile(rf"\b{COMMAND_LINE}(?::\d+:\d+)?: ")
_VARIABLE = re.compile(r"(?=.*[A-Z_])[A-Za-z_][A-Za-z0-9_]*")  # not the name of an object
_PLACEMENT = re.compile(r"`placement: \{provider: (?P<name>[\w-]+)\}`")
_SCRIPT = re.compile(r"write `script: (?P<text>.*)`$")


NAMES = ("name", "gpu", "cpu", "memory", "on", "pip", "python", "image", "env", "secret", "volume",
         "source", "no_source", "no_outputs", "timeout", "retries", "budget", "each",
         "parallelism", "nodes")  # fmt: skip
_OF_RUN_ALONE = ("source", "no_source", "no_outputs", "timeout", "each", "nodes")
_OF_SWEEPS = (*(it for it in NAMES if it not in _OF_RUN_ALONE), "trials")


def add_sweep_flags(made: Parser) -> None:
    """Adds the flags that stand for the manifest around a bare W&B sweep file."""
    group = made.add_argument_group("with a W&B sweep file, which is a Sweep by itself")
    add_work_flags(group, name="of the object; default: `name` in the file, or that of the file")
    group.add_argument("--parallelism", type=parse_count, metavar="N", help="trials at a time")
    group.add_argument("--trials", type=parse_count, metavar="N", help="in all, as `run_cap` says")


def add_work_flags(group: argparse._ArgumentGroup, *, name: str) -> None:
    """Adds the flags that describe any work. name: the description of `--name`."""
    add = group.add_argument
    add("--name", metavar="NAME", help=name)
    add("--gpu", metavar="MODEL[:N]", help="such as A100, or H100:8")
    add("--cpu", metavar="CORES", help="such as 4 or 500m")
    add("--memory", metavar="SIZE", help="such as 16Gi")
    add("--on", metavar="PROVIDER", help="where it runs; default: this machine")
    add(
        "--pip",
        action="append",
        metavar="PKG",
        help="packages to install; repeatable",
    )
    add("--python", metavar="VERSION", help="such as 3.12")
    add("--image", metavar="REF", help="an image of a registry")
    add(
        "--env",
        action="append",
        type=_parse_pair,
        metavar="NAME=VALUE",
        help="repeatable",
    )
    add("--secret", action="append", type=_parse_secret, metavar="NAME|VARIABLE",
        help="a Secret object, or a variable of this environment; repeatable")  # fmt: skip
    add("--volume", action="append", type=_parse_mount, metavar="NAME:/PATH",
        help="one that is not there is made; repeatable")  # fmt: skip
    add(
        "--retries",
        type=parse_count,
        metavar="N",
        help="how often a failure is tried again; default 0",
    )
    add(
        "--budget",
        type=parse_money,
        metavar="USD",
        help="what all attempts together may cost",
    )


def sweep_fields(args: Namespace) -> SweepFields:
    """Returns the fields that the flags of `add_sweep_flags` give."""
    spec = drop_empty({**spec_fields(args), "trials": args.trials})
    return SweepFields(args.name or "", spec, drop_empty(template_fields(args)))


def sweep_flags_given(args: Namespace) -> list[str]:
    """Returns the flags of `add_sweep_flags` that stand on the command line."""
    return [f"--{it}" for it in _OF_SWEEPS if getattr(args, it, None) is not None]


def spec_fields(args: Namespace) -> dict[str, Any]:
    """Returns the fields beside the template."""
    return {
        "parallelism": args.parallelism,
        "placement": {"provider": args.on},
        "backoffLimitPerIndex": args.retries,
        "budget": {"maxCost": args.budget},
    }


def template_fields(
    args: Namespace,
    *,
    packages: Sequence[str] = (),
    python: str = "",
) -> dict[str, Any]:
    """Returns the fields of the template. packages, python: of the program's own header."""
    return {
        "image": {
            "registry": args.image,
            "python": args.python or ("" if args.image else python),
            "pip": [*packages, *(args.pip or ())],
        },
        "resources": {
            "gpu": args.gpu,
            "cpu": parse_number(args.cpu),
            "memory": parse_number(args.memory),
        },
        "env": dict(args.env or ()),
        "secrets": args.secret,
        "volumes": args.volume,
    }


@contextmanager
def name_flags_in_errors(*, beside_files: bool = True) -> Iterator[None]:
    """Renames fields to flags in errors about the manifest that `--gpu` and its like describe."""
    try:
        yield
    except FleetctlError as error:
        if error.problems:
            error.problems = tuple(map(_name_flags, error.problems))
        elif not beside_files or COMMAND_LINE in str(error):
            error.args = (write_as_flags(str(error)),)
            error.hint = write_as_flags(error.hint)
        raise


def _name_flags(problem: ManifestProblem) -> ManifestProblem:
    if problem.file != COMMAND_LINE:
        return problem
    from dataclasses import replace

    message, hint = write_as_flags(problem.message), write_as_flags(problem.hint)
    return replace(problem, file="", line=0, column=0, message=message, hint=hint)


def write_as_flags(text: str) -> str:
    """Returns `--gpu: needs ...` for `command line:9:12: spec.template.resources.gpu: needs
    ...`."""
    text = _PLACEMENT.sub(r"`--on \g<name>`", _PREFIX.sub("", text))
    text = _SCRIPT.sub(lambda found: f"write `{_call_shell(found['text'])}`", text)
    return _FIELD.sub(lambda found: _flag_of(found[0]), text)


def _call_shell(text: str) -> str:
    """Returns a COMMAND in which a shell reads the script of a hint, which is a value of YAML."""
    import yaml

    return f"sh -c {shlex.quote(str(yaml.safe_load(text)))}"


def _flag_of(field: str) -> str:
    return next(flag for path, flag in _FLAGS.items() if field.startswith(path))


def drop_empty(value: Any) -> Any:
    """Returns the value without fields that no flag sets."""
    if not isinstance(value, dict):
        return value
    # A variable may be empty on purpose.
    as_given = ("env", "tasks")
    inner = {name: it if name in as_given else drop_empty(it) for name, it in value.items()}
    return {name: it for name, it in inner.items() if it not in (None, "", {}, [])}


def parse_number(text: str | None) -> object:
    """Reads a value as a manifest does: `4` is a number."""
    if not text:
        return text
    try:
        return resolve_scalar(text)
    except ValueError:
        return text  # the field's own check reports the error


def _parse_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"`{name}` has no value; write NAME=VALUE")
    return name, value


def _parse_secret(text: str) -> str | dict[str, str]:
    """Reads `hf` as the name of a Secret, and `HF_TOKEN`, which cannot be one, as a variable."""
    if _VARIABLE.fullmatch(text):
        return {"env": text}
    return text


def _parse_mount(text: str) -> dict[str, str]:
    name, colon, path = text.partition(":")
    if not name or not colon:
        raise argparse.ArgumentTypeError(f"`{text}` is not NAME:/PATH, such as data:/data")
    return {"name": name, "mountPath": path}
