"""`fleetctl run`: runs a command without a manifest, or another command in the environment of a
file's work; shows its output, and exits with its exit code.
"""

from __future__ import annotations

import argparse
import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.apply.request import NONE, collect_documents, cost_lines_of, order_of, send_apply
from fleetctl.cli.apply.runs import run_manifest
from fleetctl.cli.apply.runs.bring_back import WRITTEN, BringBack
from fleetctl.cli.apply.runs.run_manifest import expand_documents, with_command
from fleetctl.cli.apply.runs.work_flags import NAMES, name_flags_in_errors
from fleetctl.cli.command.flags import Parser, add_allow_missing, add_output, add_set, is_namespace
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import Refused, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line
from fleetctl.daemon.client.socket_client import results_of
from fleetctl.views.kinds import Target, parse_target
from fleetctl.views.objects import View, as_mapping
from fleetctl.views.store_reading import open_reading
from fleetctl.views.tasks import Task

if TYPE_CHECKING:
    from fleetctl.manifest.files.documents import Document

FAILED = 1  # for work that ended without an exit code
TEXT = "text"
PROGRAM_SUFFIX = ".py"

PAGE = """\
[--gpu MODEL[:N]] [--on PROVIDER] [--pip PKG ...] [FLAG ...] -- COMMAND [ARG ...]
       fleetctl run [FLAG ...] PROGRAM.py [-- ARG ...]
       fleetctl run FILE [--name NAME] [--stage NAME] [--set FIELD=VALUE ...] -- COMMAND ...

Run a command. Without a FILE it is a BatchJob of one task that flags describe: `-o yaml`
prints its manifest. This directory goes along when the command names a file in it, and
what the command writes there comes back (not with --no-outputs); files that changed here
meanwhile are not written over.
With a PROGRAM.py that program runs, with the Python and the packages that its header
`# /// script` (PEP 723) names. With --each there is a task for each row or line, and
with --nodes it is a TrainingRun.
With a FILE it runs in the environment that the file gives its work: image, source,
secrets, volumes, machine and provider, with one attempt; named by --name or after it.
Its output is shown as it comes, and its exit code is that of this command.
Ctrl-C leaves it running.

examples:
  fleetctl run -- python train.py
  fleetctl run --gpu A100 --on modal --pip torch -- python train.py --lr 0.01
  fleetctl run --gpu A100 --on modal -o yaml -- python train.py > train.yaml
  fleetctl run --set template.resources.disk=50Gi -- bash prepare.sh
  fleetctl run train.py -- --lr 0.01
  fleetctl run --nodes 2 --gpu H100:8 --secret HF_TOKEN -- torchrun train.py
  fleetctl run --each rows.csv --parallelism 50 -- python ocr.py {page}
  ls *.pdf | fleetctl run --each - -- pdftotext {}
  fleetctl run skyrl.yaml -- nvidia-smi
  fleetctl run skyrl.yaml --stage train -- bash examples/gsm8k/run_gsm8k.sh
  fleetctl run job.yaml --set template.resources.gpu=A100:4 -- python bench.py

exit codes:
  0 ok, else that of the command; of fleetctl itself: 1 it ended otherwise,
  2 wrong usage, 3 refused, 4 no such file, 130 interrupted (work goes on)
"""


class _RunParser(Parser):
    """A parser that takes all words after `--` as the command."""

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        words = list(argv)
        at = words.index("--") if "--" in words else len(words)
        args = super().parse(words[:at])
        args.command = words[at + 1 :]
        args.program = ""
        files = getattr(args, "file", None)  # `--help` ends the parse before it
        if files and len(files) == 1 and files[0].endswith(PROGRAM_SUFFIX):
            args.program = files.pop()
            args.command = ["python", args.program, *args.command]
        return args


def parser(verb: str) -> Parser:
    made = _RunParser(verb, PAGE)
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
    run_manifest.add_flags(made)
    made.add_argument("--stage", metavar="NAME", help="with a FILE: as this stage of it has it")
    return made


def run(args: Namespace, screen: Screen) -> int:
    _check_args(args)
    state_dir = find_state_dir()
    back = None if args.file else BringBack.into(args.source or ".")
    with nullcontext() if args.file else name_flags_in_errors(beside_files=False):
        documents, key = _build_manifests(args, screen)
        if args.output != TEXT:
            return _print_manifests(documents, args, screen)
        if not args.name or is_namespace(args.name):  # others are refused for their form
            _refuse_known(key, args, state_dir)
        order = order_of(_as_of_apply(args))
        if args.dry_run:
            from fleetctl.cli.apply.dry_run import dry_run

            return dry_run(documents, order, screen)
        reply = send_apply(
            state_dir,
            documents,
            order,
            screen,
            piped=False,
        )
    _report_reply(reply, screen)
    full = escape_line(
        parse_target(key, args.namespace).key
    )  # with its namespace, where that is not `default`
    screen.hint(f"its manifest: fleetctl get {full} -o yaml")
    if args.detach:
        screen.data(escape_line(key))
        screen.hint(f"its output: fleetctl logs {full} -f")
        return 0
    return _follow_output(
        state_dir,
        key,
        args,
        screen,
        back,
    )


def _check_args(args: Namespace) -> None:
    """Raises UsageError for words that do not go together."""
    words = args.file
    if not args.command:
        is_file = len(words) == 1 and words[0].endswith((".yaml", ".yml", ".json"))
        hint = "fleetctl run -- COMMAND"
        if is_file:
            file = shlex.quote(words[0])
            hint = f"to run what it declares: fleetctl apply -f {file} --wait; "
            hint += f"to run another command as its work runs: fleetctl run {file} -- COMMAND"
        elif words:
            hint = f"write it after `--`: fleetctl run -- {shlex.join(words)}"
        raise UsageError("there is no command", hint=hint)
    if len(words) > 1:
        raise UsageError(
            f"unexpected argument `{words[1]}` of `fleetctl run`",
            hint="write one FILE before `--`, and the command after it",
        )
    given = [it for it in NAMES if it != "name" and getattr(args, it) is not None]
    if args.parallelism is not None and args.each is None:
        raise UsageError("`--parallelism` goes with `--each`", hint="one command is one task")
    if args.nodes is not None and args.each is not None:
        raise UsageError("`--nodes` and `--each` do not go together", hint="one command has nodes")
    if words and given:
        flag = f"--{given[0].replace('_', '-')}"
        raise UsageError(
            f"{flag} replaces a file, and there is `{words[0]}`",
            hint="change a field of it: `--set template.resources.gpu=A100`",
        )
    if words and args.name is not None and not is_namespace(args.name):
        raise UsageError(
            f"--name is {escape_line(repr(args.name))}; a name must be 1 to 63 lower case letters, "
            "digits and `-`, and begin and end with a letter or digit",
        )
    if not words and (args.stage or args.values):
        flag = "--stage" if args.stage else "--values"
        raise UsageError(
            f"{flag} is about a file, and there is none", hint=f"fleetctl run FILE {flag} ..."
        )


def _as_of_apply(args: Namespace) -> Namespace:
    """Returns the fields of an apply request that a run has no flags for."""
    fields = {"files": args.file, "recursive": False, "prune": False, "dry_run": NONE}
    fields |= {"name": None, "trials": None}  # of a W&B sweep file
    quiet = dict.fromkeys(
        ("yes", "keep_finished", "rerun", "take_over", "wait_for_capacity"), False
    )
    empty = dict.fromkeys(("rollout", "applyset", "max_prune"), "")
    return Namespace(**{**vars(args), **fields, **quiet, **empty})


def _build_manifests(args: Namespace, screen: Screen) -> tuple[list[Document], str]:
    """Returns the manifests, and the key of the object that runs the command."""
    if args.file:
        found = expand_documents(collect_documents(_as_of_apply(args), screen))
        return with_command(found, args.command, args.stage, args.name)
    made, key = run_manifest.document_of(args, screen)
    documents = [made]
    if args.set:
        from fleetctl.cli.apply.overrides import with_settings

        documents = with_settings(documents, args.set)
    return documents, key


def _print_manifests(
    documents: Sequence[Document],
    args: Namespace,
    screen: Screen,
) -> int:
    """Prints the manifests, without storing them. Raises ManifestErrors for an invalid one."""
    from fleetctl.apply.request import namespace_of
    from fleetctl.cli.output.documents import write_all, write_document
    from fleetctl.manifest.loader import load_manifests
    from fleetctl.manifest.rendering.render import rendered_values

    load_manifests(documents, namespace_of(order_of(_as_of_apply(args))))
    values = rendered_values(documents)
    if len(values) == 1:
        write_document(values[0], args.output, screen)
    else:
        write_all(values, args.output, screen)
    return 0


def _refuse_known(
    key: str,
    args: Namespace,
    state_dir: Path,
) -> None:
    """Refuses a name that exists: a run changes no stored object, and shows no output of an earlier
    one."""
    wanted = parse_target(key, args.namespace)
    with open_reading(state_dir) as reading:
        if reading.find(wanted) is not None:
            raise Refused(
                f"{escape_line(wanted.key)} is there already, and a run makes a new one",
                hint=f"leave --name out, or run that one again: fleetctl rerun "
                f"{escape_line(wanted.key)}",
            )


def _report_reply(reply: Mapping[str, object], screen: Screen) -> None:
    """Prints as apply's screen does, but beside the output of the command, which has stdout for
    itself."""
    planned = as_mapping(reply.get("planned"))
    for result in results_of(reply):
        key = str(result.get("key", ""))
        words = (key, result.get("outcome", ""), result.get("message") or "")
        screen.talk(escape_line(" ".join(str(it) for it in words if it)))
        for text in cost_lines_of(planned.get(key)):
            screen.talk(f"  {escape_line(text)}")
    warnings = reply.get("warnings")
    for warning in warnings if isinstance(warnings, list) else ():
        screen.warn(escape_line(str(warning)))


def _follow_output(
    state_dir: Path,
    key: str,
    args: Namespace,
    screen: Screen,
    back: BringBack | None,
) -> int:
    """Shows the output until the work ends, or cannot continue by itself; returns the command's
    exit code."""
    from fleetctl.cli.follow.progress import describe_stuck
    from fleetctl.cli.follow.wait_supervisor import report_detached

    target = parse_target(key, args.namespace)
    key = target.key
    try:
        ended, task = _show_until_ended(state_dir, target, args, screen, back)
    except KeyboardInterrupt:
        return report_detached([key], f"fleetctl logs {key} -f", screen)

    if ended is None:
        screen.error(f"{escape_line(key)} was deleted")
        return FAILED
    if ended.phase == "Succeeded":
        return 0
    if not ended.over:
        hint = str(ended.map("stuck").get("hint") or f"fleetctl describe {key}")
        screen.error(describe_stuck(ended), hint=escape_line(hint))
        return FAILED

    reason = task.run.reason if task is not None else ""
    why = reason or ended.text("message") or ended.phase
    hint = f"fleetctl describe {escape_line(key)}"
    screen.error(f"{escape_line(key)}: {escape_line(why)}", hint=hint)
    exit_code = task.run.exit_code if task is not None else None
    return exit_code or FAILED


def _show_until_ended(
    state_dir: Path,
    target: Target,
    args: Namespace,
    screen: Screen,
    back: BringBack | None,
) -> tuple[View | None, Task | None]:
    """Shows the output of stored work, and brings its files back once it has ended. Returns its
    last state, None for deleted work, and its task where it has just one.
    """
    from fleetctl.cli.follow.logs_follow import TaskOutput
    from fleetctl.cli.follow.progress import CAPACITY, MISSING, StuckPolicy, wait_until_ended
    from fleetctl.common.clock import Deadline
    from fleetctl.daemon.client.overtaken import OvertakenObjects

    several = args.each is not None
    with open_reading(state_dir) as reading:
        seen = reading.find(target)
        assert seen is not None, "it was stored just now"
        uid = seen.resource.uid
        output = TaskOutput(
            state_dir,
            [seen],
            reading,
            screen,
            since_s=0.0,
            prefixed=several,
        )
        wait_until_ended(
            state_dir,
            [uid],
            reading,
            screen,
            deadline=Deadline(None),
            patience=StuckPolicy([MISSING, CAPACITY] if args.allow_missing else ()),
            output=output,
            overtaken=OvertakenObjects({}),
        )

        ended = reading.by_uid(uid)
        if ended is None:
            return None, None
        if back is not None and ended.over and _brings_files(ended):
            back.bring(ended, state_dir, reading, screen)
        return ended, None if several else reading.task(ended, 0)


def _brings_files(seen: View) -> bool:
    """Returns whether its files come back, by the fields of its template."""
    return as_mapping(seen.spec().get("template")).get("outputs") == list(WRITTEN)
