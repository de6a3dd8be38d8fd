"""`fleetctl convert`: a file of another tool as a manifest of ours, and one of ours for a cluster.
Needs no store.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetctl.cli.command.flags import Parser, add_output
from fleetctl.cli.command.values import one_of
from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.text import safe

FORMATS = ("wandb", "k8s-job", "skypilot", "dstack")
TARGETS = ("kubernetes",)
WITH_NAMES = ("skypilot", "dstack")


PAGE = """\
--from wandb|k8s-job|skypilot|dstack FILE|- [--old-names] [-o yaml|json]
    | --to kubernetes FILE|- [--namespace NAME] [-o yaml|json]

Write a W&B sweep, a Kubernetes Job or CronJob, a SkyPilot or a dstack task as manifests
of ours. What comes out is valid; what becomes something else or cannot be carried over
is said on stderr, with its line.
With --to kubernetes, write manifests of ours as custom resources for `kubectl apply`:
they are the same, but for a namespace and for files that are written into them.

examples:
  fleetctl convert --from wandb sweep.yaml > lr.yaml
  fleetctl convert --from k8s-job job.yaml | fleetctl apply -f -
  kubectl get job train -o yaml | fleetctl convert --from k8s-job -
  fleetctl convert --to kubernetes sweep.yaml --namespace team | kubectl apply -f -

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
    if (args.format is None) == (args.target is None):
        raise UsageError(
            "say either whose file it is or for what it is to be",
            hint="fleetctl convert --from wandb sweep.yaml, or --to kubernetes job.yaml",
        )
    text = _text(args.file)
    if args.target is not None:
        if args.old_names:
            raise UsageError("`--old-names` goes with `--from`", hint="leave it out")
        return _for_cluster(args, text, screen)
    if args.namespace:
        raise UsageError("`--namespace` goes with `--to kubernetes`", hint="leave it out")
    from fleetctl.manifest.foreign import convert

    stem = "converted" if args.file == "-" else Path(args.file).stem
    if args.old_names and args.format not in WITH_NAMES:
        raise UsageError(f"a file of `{args.format}` uses no variables that have other names here")
    made = convert(args.format, text, file=args.file, name=stem, old_names=args.old_names)
    return _written(list(made.manifests), made.notes, args.output, screen)


def _for_cluster(args: Namespace, text: str, screen: Screen) -> int:
    from fleetctl.manifest import Document, load
    from fleetctl.manifest.cluster import for_cluster

    here = str(Path.cwd() if args.file == "-" else Path(args.file).resolve().parent)
    document = Document(args.file, text, here)
    load([document])  # what it would be refused for is told at once
    made, notes = for_cluster(document, args.namespace)
    return _written(made, notes, args.output, screen)


def _written(
    many: Sequence[Mapping[str, Any]], notes: Sequence[str], output: str, screen: Screen
) -> int:
    for note in notes:
        screen.warn(safe(note))
    if output == "json":
        screen.data(json.dumps(many[0] if len(many) == 1 else many, indent=2, ensure_ascii=False))
        return 0
    from fleetctl.manifest.yaml.emit import to_yaml

    screen.data("---\n".join(to_yaml(one) for one in many).rstrip())
    return 0


def _text(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise NotFound(f"there is no file `{file}`") from error
    except (IsADirectoryError, UnicodeDecodeError) as error:
        raise UsageError(f"`{file}` is not a text file") from error
