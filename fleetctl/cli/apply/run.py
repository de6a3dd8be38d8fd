"""`fleetctl run`: a command without a manifest, or another command in the environment that a file
gives its work; its output is shown, and its exit code is ours.
"""

from __future__ import annotations

import argparse
import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.apply.request import apply, documents_meant, order_of
from fleetctl.cli.apply.runs import from_flags
from fleetctl.cli.apply.runs.from_file import plain, with_command
from fleetctl.cli.apply.screens.cost_lines import cost_lines
from fleetctl.cli.apply.screens.outcomes import NONE
from fleetctl.cli.command.flags import Parser, add_allow_missing, add_output, add_set
from fleetctl.cli.command.values import is_namespace
from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import Refused, UsageError
from fleetctl.common.home import home
from fleetctl.common.text import safe
from fleetctl.daemon.reach.client import results_of
from fleetctl.views.kinds import target
from fleetctl.views.objects import mapping
from fleetctl.views.reading import open_reading

if TYPE_CHECKING:
    from fleetctl.manifest.files.documents import Document

FAILED = 1  # of what ended without a code of its own
TEXT = "text"

PAGE = """\
[--gpu MODEL[:N]] [--on PROVIDER] [--pip PKG ...] [FLAG ...] -- COMMAND [ARG ...]
       fleetctl run FILE [--stage NAME] [--set FIELD=VALUE ...] -- COMMAND [ARG ...]

Run a command. Without a FILE it is a BatchJob of one task that flags describe: `-o yaml`
prints its manifest. This directory goes along when the command names a file in it.
With a FILE it runs in the environment that the file gives its work: image, source,
secrets, volumes, machine and place; named after that object, with one attempt.
Its output is shown as it comes, and its exit code is that of this command.
Ctrl-C leaves it running.

examples:
  fleetctl run -- python train.py
  fleetctl run --gpu A100 --on modal --pip torch -- python train.py --lr 0.01
  fleetctl run --gpu A100 --on modal -o yaml -- python train.py > train.yaml
  fleetctl run --set template.resources.disk=50Gi -- bash prepare.sh
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
    made.add_argument("file", nargs="*", metavar="FILE", help="has one object that does work")
    how = made.add_mutually_exclusive_group()
    how.add_argument(
        "-w", "--watch", action="store_true", help="show its output until it ends: the default"
    )
    how.add_argument("-d", "--detach", action="store_true", help="start it, and do not follow it")
    add_output(made, TEXT, "yaml", "json")
    made.add_argument(
        "--dry-run", action="store_true", help="say what would be made, store nothing"
    )
    add_set(made)
    add_allow_missing(made)
    from_flags.add_flags(made)
    made.add_argument("--stage", metavar="NAME", help="with a FILE: as this stage of it has it")
    return made


def run(args: Namespace, screen: Screen) -> int:
    _check(args)
    state_dir = home()
    with nullcontext() if args.file else from_flags.told_by_flags():
        documents, key = _desired(args, screen)
        if args.output != TEXT:
            return _print(documents, args, screen)
        if not args.name or is_namespace(args.name):  # others are refused for their form
            _refuse_known(key, args, state_dir)
        order = order_of(_as_of_apply(args))
        if args.dry_run:
            from fleetctl.cli.apply.predictions import dry_run

            return dry_run(documents, order, screen)
        reply = apply(state_dir, documents, order, screen, piped=False)
    _tell(reply, screen)
    full = safe(target(key, args.namespace).key)  # with its namespace, where that is not `default`
    screen.hint(f"its manifest: fleetctl get {full} -o yaml")
    if args.detach:
        screen.data(safe(key))
        screen.hint(f"its output: fleetctl logs {full} -f")
        return 0
    return _follow(state_dir, key, args, screen)


def _check(args: Namespace) -> None:
    """Raises UsageError for words that do not go together."""
    words = args.file
    if not args.command:
        is_file = len(words) == 1 and words[0].endswith((".yaml", ".yml", ".json"))
        hint = f"fleetctl run {words[0]} -- COMMAND" if is_file else "fleetctl run -- COMMAND"
        if words and not is_file:
            program = ["python"] * words[0].endswith(".py")
            hint = f"it stands behind `--`: fleetctl run -- {shlex.join([*program, *words])}"
        raise UsageError("there is no command", hint=hint)
    if len(words) > 1:
        raise UsageError(
            f"unexpected argument `{words[1]}` of `fleetctl run`",
            hint="one FILE stands before `--`, and the command behind it",
        )
    given = [it for it in from_flags.NAMES if getattr(args, it) is not None]
    if words and given:
        flag = f"--{given[0].replace('_', '-')}"
        raise UsageError(
            f"{flag} stands for a file, and there is `{words[0]}`",
            hint="change a field of it: `--set template.resources.gpu=A100`",
        )
    if not words and (args.stage or args.values):
        flag = "--stage" if args.stage else "--values"
        raise UsageError(
            f"{flag} is about a file, and there is none", hint=f"fleetctl run FILE {flag} ..."
        )


def _as_of_apply(args: Namespace) -> Namespace:
    """What the request of an apply asks for, and a run has no say in."""
    fields = {"files": args.file, "recursive": False, "prune": False, "dry_run": NONE}
    quiet = dict.fromkeys(
        ("yes", "keep_finished", "rerun", "take_over", "wait_for_capacity"), False
    )
    empty = dict.fromkeys(("rollout", "applyset", "max_prune"), "")
    return Namespace(**{**vars(args), **fields, **quiet, **empty})


def _desired(args: Namespace, screen: Screen) -> tuple[list[Document], str]:
    """The manifests, and the key of the object that runs the command."""
    if args.file:
        found = plain(documents_meant(_as_of_apply(args), screen))
        return with_command(found, args.command, args.stage)
    made, name = from_flags.document_of(args, screen)
    documents = [made]
    if args.set:
        from fleetctl.cli.apply.overrides import with_settings

        documents = with_settings(documents, args.set)
    return documents, f"batchjob/{name}"


def _print(documents: Sequence[Document], args: Namespace, screen: Screen) -> int:
    """The manifests, which are stored nowhere. Raises ManifestErrors where one is wrong."""
    from fleetctl.apply.request.options import namespace_of
    from fleetctl.cli.output.documents import write, write_all
    from fleetctl.manifest.loader import load
    from fleetctl.manifest.rendering.render import rendered_values

    load(documents, namespace_of(order_of(_as_of_apply(args))))
    values = rendered_values(documents)
    if len(values) == 1:
        write(values[0], args.output, screen)
    else:
        write_all(values, args.output, screen)
    return 0


def _refuse_known(key: str, args: Namespace, state_dir: Path) -> None:
    """A run is new: it changes nothing that is there, and shows no output of yesterday."""
    wanted = target(key, args.namespace)
    with open_reading(state_dir) as reading:
        if reading.find(wanted) is not None:
            raise Refused(
                f"{safe(wanted.key)} is there already, and a run makes a new one",
                hint=f"leave --name out, or run that one again: fleetctl rerun {safe(wanted.key)}",
            )


def _tell(reply: Mapping[str, object], screen: Screen) -> None:
    """As apply's screen does, but beside the output of the command, which has stdout for itself."""
    planned = mapping(reply.get("planned"))
    for result in results_of(reply):
        key = str(result.get("key", ""))
        words = (key, result.get("outcome", ""), result.get("message") or "")
        screen.talk(safe(" ".join(str(it) for it in words if it)))
        for text in cost_lines(mapping(planned.get(key))):
            screen.talk(f"  {safe(text)}")
    warnings = reply.get("warnings")
    for warning in warnings if isinstance(warnings, list) else ():
        screen.warn(safe(str(warning)))


def _follow(state_dir: Path, key: str, args: Namespace, screen: Screen) -> int:
    """Show the output until it ends, or cannot go on by itself; the exit code of the command."""
    from fleetctl.cli.follow.logs_follow import Output
    from fleetctl.cli.follow.patience import CAPACITY, MISSING, Patience, sentence
    from fleetctl.cli.follow.progress import until_ended
    from fleetctl.cli.follow.supervise import detached
    from fleetctl.common.deadline import Deadline
    from fleetctl.daemon.reach.overtaken import Overtaken

    wanted = target(key, args.namespace)
    key = wanted.key
    try:
        with open_reading(state_dir) as reading:
            seen = reading.find(wanted)
            assert seen is not None, "it was stored just now"
            output = Output(state_dir, [seen], reading, screen, since_s=0.0, prefixed=False)
            patience = Patience([MISSING, CAPACITY] if args.allow_missing else ())
            until_ended(
                state_dir, [seen.resource.uid], reading, screen,
                deadline=Deadline(None), patience=patience, output=output,
                overtaken=Overtaken({}),
            )  # fmt: skip
            ended = reading.by_uid(seen.resource.uid)
            task = reading.task(ended, 0) if ended is not None else None
    except KeyboardInterrupt:
        return detached([key], f"fleetctl logs {key} -f", screen)
    if ended is None:
        screen.error(f"{safe(key)} was deleted")
        return FAILED
    if ended.phase == "Succeeded":
        return 0
    if not ended.over:
        hint = str(ended.map("stuck").get("hint") or f"fleetctl describe {key}")
        screen.error(sentence(ended), hint=safe(hint))
        return FAILED
    why = (task.run.reason if task is not None else "") or ended.text("message") or ended.phase
    screen.error(f"{safe(key)}: {safe(why)}", hint=f"fleetctl describe {safe(key)}")
    return (task.run.exit_code if task is not None else None) or FAILED
