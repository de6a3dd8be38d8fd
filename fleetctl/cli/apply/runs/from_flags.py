"""Makes a BatchJob from flags.

Called by run.py. The result is an ordinary manifest: the loader and the controller check it.
"""

from __future__ import annotations

import re
import secrets
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fleetctl.cli.apply.runs.bring_back import WRITTEN
from fleetctl.cli.apply.runs.each import read_tasks, template_of
from fleetctl.cli.apply.runs.from_file import NAME_CHARACTERS_MAX
from fleetctl.cli.apply.runs.run_source import files_named, source_of
from fleetctl.cli.apply.runs.script_header import ScriptHeader, read_script_header
from fleetctl.cli.apply.runs.work_flags import (
    add_work_flags,
    drop_empty,
    parse_number,
    spec_fields,
    template_fields,
)
from fleetctl.cli.command.flags import Parser
from fleetctl.cli.command.values import parse_count
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.sweep_files import COMMAND_LINE
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.specs.kinds.registry import API_VERSION, KINDS
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE

_SUFFIX_BYTES = 2


def add_flags(made: Parser) -> None:
    """Adds the flags that stand for a manifest; the fields of a BatchJob describe them."""
    group = made.add_argument_group("without a FILE")
    add = group.add_argument
    add_work_flags(group, name="of the object; default: a new one after the program")
    add("--source", metavar="DIR",
        help="directory to bring; default: this one, where COMMAND names a file in it")  # fmt: skip
    add(
        "--no-source",
        action="store_true",
        default=None,
        help="no files go along",
    )
    add("--no-outputs", action="store_true", default=None,
        help="what it writes beside the files that go along does not come back")  # fmt: skip
    add("--timeout", metavar="TIME", help="what one attempt may take, such as 2h")
    add("--each", metavar="FILE|-",
        help="a task for each row of a .csv or .jsonl, or each line of another file or stdin;"
        " {NAME} in COMMAND is its parameter, {} its line")  # fmt: skip
    add(
        "--parallelism",
        type=parse_count,
        metavar="N",
        help="with --each: tasks at a time; default 1",
    )
    add(
        "--nodes",
        type=parse_count,
        metavar="N",
        help="machines that run it together: torchrun",
    )


def document_of(args: Namespace, screen: Screen) -> tuple[Document, str]:
    """Returns the manifest, and the object's key. Prints the files that are uploaded. Raises
    NotFound, Refused and UsageError.
    """
    rows = read_tasks(args.each) if args.each is not None else None
    work = template_of(args.command, rows)
    header = read_script_header(Path(args.program)) if args.program else ScriptHeader()
    source = source_of(args.source, args.command, screen, none=bool(args.no_source))
    name = args.name or name_of(args.command)
    template = {
        **work,
        **template_fields(args, packages=header.packages, python=header.python),
        "source": {"path": source},
        "outputs": list(WRITTEN) if comes_back(args, source) else None,
        "timeoutSeconds": parse_number(args.timeout),
    }
    kind = "BatchJob"
    spec = spec_fields(args)
    if args.nodes is not None:
        kind = "TrainingRun"
        retries = spec.pop("backoffLimitPerIndex")
        spec |= {"nodes": args.nodes, "maxRestarts": retries}
    namespace = args.namespace if args.namespace != DEFAULT_NAMESPACE else None
    whole = {
        "apiVersion": API_VERSION,
        "kind": KINDS[kind].name,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "tasks": rows.tasks if rows is not None else None,
            **spec,
            "template": template,
        },
    }
    return Document(
        COMMAND_LINE, to_yaml(drop_empty(whole)), str(Path.cwd())
    ), f"{kind.lower()}/{name}"


def comes_back(args: Namespace, source: str) -> bool:
    """Returns whether what the command writes comes back: where it runs in a copy of `source`. An
    image that somebody names may lack the Python that keeps files, unless the command is Python.
    """
    may_lack = args.image is not None and not args.command[0].startswith("python")
    return bool(source) and not args.no_outputs and not may_lack


def name_of(command: Sequence[str]) -> str:
    """Returns a new name after the first file that the command names, or the module, or the
    program."""
    named = next(files_named(command, Path.cwd()), None)
    words = Path(named.path if named is not None else command[0]).stem
    plain = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "run"
    suffix = f"-{secrets.token_hex(_SUFFIX_BYTES)}"
    return f"{plain[: NAME_CHARACTERS_MAX - len(suffix)].rstrip('-')}{suffix}"
