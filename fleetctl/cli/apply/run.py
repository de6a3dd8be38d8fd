"""`fleetctl run`: another command in the environment that a file gives its work; its output is
shown, and its exit code is ours.
"""

from __future__ import annotations

import argparse
import secrets
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fleetctl.cli.apply.request import apply, documents_meant, order_of
from fleetctl.cli.apply.screens.outcomes import NONE
from fleetctl.cli.command.flags import Parser, add_allow_missing, add_set
from fleetctl.cli.follow.logs_select import Pick
from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import UsageError
from fleetctl.common.home import home
from fleetctl.common.text import safe
from fleetctl.manifest.files.lists import read_manifests
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.specs.kinds.registry import KINDS, kind_called
from fleetctl.views.kinds import target
from fleetctl.views.reading import open_reading

if TYPE_CHECKING:
    from fleetctl.manifest.files.documents import Document

FAILED = 1  # of what ended without a code of its own
NAME_CHARACTERS_MAX = 63
_SUFFIX_BYTES = 2
# What a run takes over of the spec beside its template.
_KEPT = ("placement", "nodes", "procPerNode", "ray", "rdma", "budget")
_WORK = ("python", "command", "script")

PAGE = """\
FILE [--stage NAME] [--set FIELD=VALUE ...] -- COMMAND [ARG ...]

Run a command in the environment that a file gives its work: image, source, secrets,
volumes, machine and place. It is an object of its own, named after that of the file,
with one attempt; its output is shown as it comes, and its exit code is that of this
command. Ctrl-C leaves it running.

examples:
  fleetctl run skyrl.yaml -- nvidia-smi
  fleetctl run skyrl.yaml --stage train -- bash examples/gsm8k/run_gsm8k.sh
  fleetctl run job.yaml --set template.resources.gpu=A100:4 -- python bench.py

exit codes:
  0 ok, else that of the command; of fleetctl itself: 1 it ended otherwise,
  2 wrong usage, 3 refused, 4 no such file, 130 interrupted (work goes on)
"""


class _Parser(Parser):
    """What follows `--` is the command, whatever it looks like."""

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        words = list(argv)
        at = words.index("--") if "--" in words else len(words)
        args = super().parse(words[:at])
        args.command = words[at + 1 :]
        return args


def parser(verb: str) -> Parser:
    made = _Parser(verb, PAGE)
    made.add_argument("file", metavar="FILE", help="a manifest with one object that does work")
    made.add_argument("--stage", metavar="NAME", help="as this stage of it has its environment")
    add_set(made)
    add_allow_missing(made)
    return made


def run(args: Namespace, screen: Screen) -> int:
    if not args.command:
        raise UsageError("there is no command", hint=f"fleetctl run {args.file} -- COMMAND")
    # What the request of an apply asks for, and a run has no say in.
    fields = {"files": [args.file], "recursive": False, "prune": False, "dry_run": NONE}
    quiet = dict.fromkeys(
        ("yes", "keep_finished", "rerun", "take_over", "wait_for_capacity"), False
    )
    empty = dict.fromkeys(("rollout", "applyset", "max_prune"), "")
    whole = Namespace(**{**vars(args), **fields, **quiet, **empty})
    documents, key = with_command(_plain(documents_meant(whole, screen)), args.command, args.stage)
    state_dir = home()
    apply(state_dir, documents, order_of(whole), screen, piped=False)
    screen.talk(f"{key} runs; its output follows")
    from fleetctl.cli.follow.logs_follow import follow
    from fleetctl.cli.follow.supervise import detached

    wanted = target(key, args.namespace)
    try:
        with open_reading(state_dir) as reading:
            seen = reading.find(wanted)
            assert seen is not None, "it was stored just now"
            follow(state_dir, [seen], Pick(None, False, None, None, False), reading, screen)
            ended = reading.find(wanted)
            task = reading.task(seen, 0)
    except KeyboardInterrupt:
        return detached([key], f"fleetctl logs {key} -f", screen)
    if ended is not None and ended.phase == "Succeeded":
        return 0
    if ended is not None:
        screen.error(f"{safe(key)}: {safe(ended.text('message') or ended.phase)}")
    return (task.run.exit_code if task is not None else None) or FAILED


def _plain(documents: Sequence[Document]) -> list[Document]:
    """With variables and overlays in them: what a run leaves out may be all that refers to one."""
    from fleetctl.manifest.rendering.render import rendered_documents, renders

    return rendered_documents(documents) if renders(documents) else list(documents)


def with_command(
    documents: Sequence[Document], command: Sequence[str], stage: str | None
) -> tuple[list[Document], str]:
    """The documents with a TrainingRun of this command in place of the object that does work, and
    its key. Raises UsageError where there is not one such object, and for an unknown stage.
    """
    found: list[str] = []
    made: list[Document] = []
    for document in documents:
        reading = read_manifests(document.path, document.text)
        values = [root.value for root in reading.roots]
        works = [it for it in values if isinstance(it, dict) and _does_work(it)]
        if reading.problems or not works:
            made.append(document)
            continue
        found += [str(it.get("metadata", {}).get("name")) for it in works]
        changed = [_run_of(it, command, stage) if it in works else it for it in values]
        made.append(document._replace(text="---\n".join(map(to_yaml, changed))))
        name = changed[values.index(works[0])]["metadata"]["name"]
    if len(found) != 1:
        raise UsageError(
            f"a run needs a file with one object that does work; here are {len(found)}",
            hint="name a file that has one",
        )
    return made, f"trainingrun/{name}"


def _does_work(value: Mapping[str, object]) -> bool:
    kind = kind_called(value.get("kind"))
    return kind is not None and kind.runs


def _run_of(value: dict[str, Any], command: Sequence[str], stage: str | None) -> dict[str, Any]:
    spec, about = value.get("spec") or {}, value.get("metadata") or {}
    own = _stage_of(spec, stage) if stage else {}
    template = {**(spec.get("template") or {})}
    template["env"] = {**(template.get("env") or {}), **(own.pop("env", None) or {})}
    kept = {name: spec[name] for name in _KEPT if name in spec}
    kept |= {name: own.pop(name) for name in _KEPT if name in own}
    template |= {name: it for name, it in own.items() if name != "name"}
    template = {name: it for name, it in template.items() if name not in _WORK and it != {}}
    suffix = f"-run-{secrets.token_hex(_SUFFIX_BYTES)}"
    name = f"{str(about.get('name'))[: NAME_CHARACTERS_MAX - len(suffix)]}{suffix}"
    return {
        **value,
        "kind": KINDS["TrainingRun"].name,
        "metadata": {**about, "name": name},
        "spec": {**kept, "template": {**template, "command": list(command)}},
    }


def _stage_of(spec: Mapping[str, Any], name: str) -> dict[str, Any]:
    stages = {it.get("name"): it for it in spec.get("stages") or () if isinstance(it, dict)}
    if name not in stages:
        known = ", ".join(map(str, stages)) or "none"
        raise UsageError(f"there is no stage `{name}` in this file", hint=f"it has {known}")
    return dict(stages[name])
