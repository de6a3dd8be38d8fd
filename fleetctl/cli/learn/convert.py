"""`fleetctl convert`: a file of another tool as a manifest of ours. Needs no store."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

from fleetctl.cli.command.flags import Parser, add_output
from fleetctl.cli.command.values import one_of
from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.text import safe

FORMATS = ("wandb", "k8s-job", "skypilot", "dstack")


PAGE = """\
--from wandb|k8s-job|skypilot|dstack FILE|- [-o yaml|json]

Write a W&B sweep, a Kubernetes Job, a SkyPilot or a dstack task as a manifest of
ours. What comes out is valid; what cannot be carried over is told on stderr.

examples:
  fleetctl convert --from wandb sweep.yaml > lr.yaml
  fleetctl convert --from k8s-job job.yaml | fleetctl apply -f -
  kubectl get job train -o yaml | fleetctl convert --from k8s-job -

exit codes:
  0 converted, also with warnings; 2 nothing could be made of it, 4 no such file
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument(
        "--from",
        dest="format",
        required=True,
        type=one_of(*FORMATS),
        metavar="|".join(FORMATS),
        help="whose file it is",
    )
    made.add_argument("file", metavar="FILE", help="the file, or - for stdin")
    add_output(made, "yaml", "json")
    return made


def run(args: Namespace, screen: Screen) -> int:
    from fleetctl.manifest.foreign import convert

    text = _text(args.file)
    stem = "converted" if args.file == "-" else Path(args.file).stem
    made = convert(args.format, text, file=args.file, name=stem)
    for note in made.notes:
        screen.warn(safe(note))
    if args.output == "json":
        many = list(made.manifests)
        screen.data(json.dumps(many[0] if len(many) == 1 else many, indent=2, ensure_ascii=False))
        return 0
    from fleetctl.manifest.yaml.emit import to_yaml

    screen.data("---\n".join(to_yaml(one) for one in made.manifests).rstrip())
    return 0


def _text(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise NotFound(f"there is no file `{file}`") from error
    except (IsADirectoryError, UnicodeDecodeError) as error:
        raise UsageError(f"`{file}` is not a text file") from error
