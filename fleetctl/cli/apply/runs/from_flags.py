"""A BatchJob of one task from flags, and errors about it in the words of those flags.

Called by run.py. What comes out is an ordinary manifest: the loader and the controller check it.
"""

from __future__ import annotations

import argparse
import re
import secrets
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleetctl.cli.apply.runs.from_file import NAME_CHARACTERS_MAX
from fleetctl.cli.apply.runs.travelling import files_named, source_of
from fleetctl.cli.command.flags import Parser
from fleetctl.cli.command.values import count, money
from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import FleetctlError
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.plain import resolve
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.specs.kinds.registry import API_VERSION, KINDS
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE

COMMAND_LINE = "command line"  # the path of the document, before a person reads it
_SUFFIX_BYTES = 2
# Flags, by the field that each gives. The deepest first: the first one that fits is told.
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
    "spec.placement.provider": "--on",
    "spec.placement": "--on",
    "spec.backoffLimitPerIndex": "--retries",
    "spec.budget.maxCost": "--budget",
    "metadata.name": "--name",
}
_FIELD = re.compile("|".join(rf"{re.escape(it)}(?:\[\d+\]|\.\w+)*(?!\w)" for it in _FLAGS))
_PLACE = re.compile(rf"\b{COMMAND_LINE}(?::\d+:\d+)?: ")
_PLACEMENT = re.compile(r"`placement: \{provider: (?P<name>[\w-]+)\}`")


def add_flags(made: Parser) -> None:
    """Those that stand for a manifest; what each is, the fields of a BatchJob say."""
    group = made.add_argument_group("without a FILE")
    add = group.add_argument
    add("--name", metavar="NAME", help="of the object; default: a new one after the program")
    add("--gpu", metavar="MODEL[:N]", help="such as A100, or H100:8")
    add("--cpu", metavar="CORES", help="such as 4 or 500m")
    add("--memory", metavar="SIZE", help="such as 16Gi")
    add("--on", metavar="PROVIDER", help="where it runs; default: this machine")
    add("--pip", action="append", metavar="PKG", help="what to install; repeatable")
    add("--python", metavar="VERSION", help="such as 3.12")
    add("--image", metavar="REF", help="an image of a registry")
    add("--env", action="append", type=_pair, metavar="NAME=VALUE", help="repeatable")
    add("--secret", action="append", metavar="NAME", help="of a Secret object; repeatable")
    add("--volume", action="append", type=_mount, metavar="NAME:/PATH",
        help="one that is not there is made; repeatable")  # fmt: skip
    add("--source", metavar="DIR",
        help="what goes along; default: this one, where COMMAND names a file in it")  # fmt: skip
    add("--no-source", action="store_true", default=None, help="no files go along")
    add("--timeout", metavar="TIME", help="what one attempt may take, such as 2h")
    add("--retries", type=count, metavar="N", help="how often a failure is tried again; default 0")
    add("--budget", type=money, metavar="USD", help="what all attempts together may cost")


NAMES = ("name", "gpu", "cpu", "memory", "on", "pip", "python", "image", "env", "secret", "volume",
         "source", "no_source", "timeout", "retries", "budget")  # fmt: skip


def document_of(args: Namespace, screen: Screen) -> tuple[Document, str]:
    """The manifest, and the object's name. Tells which files go along. Raises NotFound, Refused."""
    source = source_of(args.source, args.command, screen, none=bool(args.no_source))
    name = args.name or name_of(args.command)
    image = {"registry": args.image, "python": args.python, "pip": args.pip}
    resources = {"gpu": args.gpu, "cpu": _plain(args.cpu), "memory": _plain(args.memory)}
    template = {
        "command": list(args.command),
        "image": image,
        "source": {"path": source},
        "resources": resources,
        "env": dict(args.env or ()),
        "secrets": args.secret,
        "volumes": args.volume,
        "timeoutSeconds": _plain(args.timeout),
    }
    namespace = args.namespace if args.namespace != DEFAULT_NAMESPACE else None
    whole = {
        "apiVersion": API_VERSION,
        "kind": KINDS["BatchJob"].name,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "placement": {"provider": args.on},
            "backoffLimitPerIndex": args.retries,
            "budget": {"maxCost": args.budget},
            "template": template,
        },
    }
    return Document(COMMAND_LINE, to_yaml(_said(whole)), str(Path.cwd())), name


def name_of(command: Sequence[str]) -> str:
    """A new one after the first file that the command names, or the module, or the program."""
    named = next(files_named(command, Path.cwd()), None)
    words = Path(named.path if named is not None else command[0]).stem
    plain = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "run"
    suffix = f"-{secrets.token_hex(_SUFFIX_BYTES)}"
    return f"{plain[: NAME_CHARACTERS_MAX - len(suffix)].rstrip('-')}{suffix}"


@contextmanager
def told_by_flags() -> Iterator[None]:
    """Errors about the manifest, which nobody wrote, name the flags that it came from."""
    try:
        yield
    except FleetctlError as error:
        error.args = (in_flags(str(error)),)
        error.hint = in_flags(error.hint)
        raise


def in_flags(text: str) -> str:
    """`--gpu: needs ...` for `command line:9:12: spec.template.resources.gpu: needs ...`."""
    text = _PLACEMENT.sub(r"`--on \g<name>`", _PLACE.sub("", text))
    return _FIELD.sub(lambda found: _flag_of(found[0]), text)


def _flag_of(field: str) -> str:
    return next(flag for path, flag in _FLAGS.items() if field.startswith(path))


def _said(value: Any) -> Any:
    """Without what no flag says."""
    if not isinstance(value, dict):
        return value
    # A variable may be empty on purpose.
    inner = {name: it if name == "env" else _said(it) for name, it in value.items()}
    return {name: it for name, it in inner.items() if it not in (None, "", {}, [])}


def _plain(text: str | None) -> object:
    """As a manifest reads it: `4` is a number."""
    if not text:
        return text
    try:
        return resolve(text)
    except ValueError:
        return text  # the field's own check tells what is wrong with it


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"`{name}` has no value; write NAME=VALUE")
    return name, value


def _mount(text: str) -> dict[str, str]:
    name, colon, path = text.partition(":")
    if not name or not colon:
        raise argparse.ArgumentTypeError(f"`{text}` is not NAME:/PATH, such as data:/data")
    return {"name": name, "mountPath": path}
