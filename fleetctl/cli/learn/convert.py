"""`fleetctl convert`: turns a file of another tool into a manifest of ours, and one of ours into a
cluster's, in the short or in the full form. Needs no store.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetctl.cli.command.flags import Parser, add_output, one_of
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.text import escape_line

FORMATS = ("wandb", "k8s-job", "skypilot", "dstack")
TARGETS = ("kubernetes",)
WITH_NAMES = ("skypilot", "dstack")


PAGE = """\
--from wandb|k8s-job|skypilot|dstack FILE|- [--old-names] [-o yaml|json]
    | --to kubernetes FILE|- [--namespace NAME] [-o yaml|json]
    | --short|--long FILE|- [-o yaml|json]

Write a W&B sweep, a Kubernetes Job or CronJob, a SkyPilot or a dstack task as manifests
of ours. What comes out is valid; what becomes something else or cannot be carried over
is reported on stderr, with its line.
With --to kubernetes, write manifests of ours as custom resources for `kubectl apply`:
they are the same, but for a namespace and for files that are written into them.
With --short, write manifests of ours without the levels and fields that can have one
meaning alone; with --long, write them in the full form, as they are stored.

examples:
  fleetctl convert --from wandb sweep.yaml > lr.yaml
  fleetctl convert --from k8s-job job.yaml | fleetctl apply -f -
  kubectl get job train -o yaml | fleetctl convert --from k8s-job -
  fleetctl convert --to kubernetes sweep.yaml --namespace team | kubectl apply -f -
  fleetctl convert --short job.yaml

exit codes:
  0 converted, also with warnings; 2 nothing could be made of it, 4 no such file
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument(
        "--from",
        dest="format",
        type=one_of(*FORMATS),
        metavar="|".join(FORMATS),
        help="whose file it is",
    )
    made.add_argument(
        "--to", dest="target", type=one_of(*TARGETS), metavar="|".join(TARGETS), help="for what"
    )
    made.add_argument("--short", action="store_true", help="write manifests in the short form")
    made.add_argument("--long", action="store_true", help="write manifests in the full form")
    made.add_argument(
        "--namespace", default="", metavar="NAME", help="for those that name none; with --to"
    )
    made.add_argument(
        "--old-names",
        action="store_true",
        help="of skypilot and dstack: programs find all variables of that tool under its names",
    )
    made.add_argument("file", metavar="FILE", help="the file, or - for stdin")
    add_output(made, "yaml", "json")
    return made


def run(args: Namespace, screen: Screen) -> int:
    ways = (args.format is not None, args.target is not None, args.short, args.long)
    if sum(ways) != 1:
        raise UsageError(
            "convert needs one of `--from`, `--to`, `--short` and `--long`",
            hint="fleetctl convert --from wandb sweep.yaml, --to kubernetes job.yaml, or --short"
            " job.yaml",
        )
    text = _read_text(args.file)
    if args.short or args.long:
        return _write_in_form(args, text, screen)
    if args.target is not None:
        if args.old_names:
            raise UsageError("`--old-names` goes with `--from`", hint="leave it out")
        return _for_cluster(args, text, screen)
    if args.namespace:
        raise UsageError("`--namespace` goes with `--to kubernetes`", hint="leave it out")
    from fleetctl.manifest.foreign import convert_text

    stem = "converted" if args.file == "-" else Path(args.file).stem
    if args.old_names and args.format not in WITH_NAMES:
        raise UsageError(f"a file of `{args.format}` uses no variables that have other names here")
    made = convert_text(
        args.format,
        text,
        file=args.file,
        name=stem,
        old_names=args.old_names,
    )
    return _print_manifests(list(made.manifests), made.notes, args.output, screen)


def _write_in_form(
    args: Namespace,
    text: str,
    screen: Screen,
) -> int:
    from fleetctl.manifest.document.short import shorten_manifest
    from fleetctl.manifest.rendering.render import read_full_values
    from fleetctl.specs.kinds.registry import KINDS

    if args.old_names or args.namespace:
        flag = "--old-names" if args.old_names else "--namespace"
        raise UsageError(f"`{flag}` does not go with `--short` or `--long`", hint="leave it out")
    values = read_full_values(args.file, text)
    for value in values if args.short else ():
        if value.get("kind") not in KINDS:
            screen.warn(f"{escape_line(str(value.get('kind')))} has no short form")
    made = [shorten_manifest(it) if args.short and it.get("kind") in KINDS else it for it in values]
    return _print_manifests(made, (), args.output, screen)


def _for_cluster(
    args: Namespace,
    text: str,
    screen: Screen,
) -> int:
    from fleetctl.manifest import Document, load_manifests
    from fleetctl.manifest.cluster import for_cluster

    here = str(Path.cwd() if args.file == "-" else Path(args.file).resolve().parent)
    document = Document(args.file, text, here)
    load_manifests([document])  # the errors of an apply are printed at once
    made, notes = for_cluster(document, args.namespace)
    return _print_manifests(made, notes, args.output, screen)


def _print_manifests(
    many: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
    output: str,
    screen: Screen,
) -> int:
    for note in notes:
        screen.warn(escape_line(note))
    if output == "json":
        screen.data(json.dumps(many[0] if len(many) == 1 else many, indent=2, ensure_ascii=False))
        return 0
    from fleetctl.manifest.yaml.emit import to_yaml

    screen.data("---\n".join(to_yaml(one) for one in many).rstrip())
    return 0


def _read_text(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise NotFound(f"there is no file `{file}`") from error
    except (IsADirectoryError, UnicodeDecodeError) as error:
        raise UsageError(f"`{file}` is not a text file") from error
