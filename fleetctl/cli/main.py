"""The entry point: find the verb, load its module alone, turn errors into a line and an exit code.

Called by the console script. Imports nothing that a verb does not need: start-up time is a feature.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from fleetctl.cli.render import Screen, mend_streams, silence_stdout, system_screen
from fleetctl.errors import FleetctlError, UsageError

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130

# Python looks for garbage every 700 objects, in all that there are: a quarter of the time of a list
# of 10,000. A command makes little garbage and ends soon; the controller keeps Python's setting.
GARBAGE_OBJECTS = 100_000


class Verb(NamedTuple):
    """`module` has `parser(verb) -> Parser` and `run(args, screen) -> int`."""

    module: str
    summary: str


VERBS = {
    "apply": Verb("apply", "make the world look like these files"),
    "plan": Verb("plan", "show what an apply would do, where, and what it would cost"),
    "diff": Verb("diff", "show how what is stored differs from these files"),
    "validate": Verb("validate", "check files without storing anything"),
    "get": Verb("get", "list objects, tasks and attempts"),
    "describe": Verb("describe", "show one object in full: why it stands where it stands"),
    "logs": Verb("logs", "show what tasks printed"),
    "results": Verb("results", "show what tasks submitted"),
    "plot": Verb("plot", "draw a sweep, or what tasks reported over their steps"),
    "top": Verb("top", "show what runs now, and what it costs an hour"),
    "cost": Verb("cost", "show what was spent, by object, kind, provider or label"),
    "query": Verb("query", "ask with SQL what ran, where, and what it cost"),
    "exec": Verb("exec", "run a command beside a task that runs"),
    "port-forward": Verb("portforward", "let a port here lead to one of a task that runs"),
    "ls": Verb("ls", "list the files in a volume"),
    "cp": Verb("cp", "copy files into a volume or a task, or out of it"),
    "rm": Verb("rm", "remove files from a volume"),
    "wait": Verb("wait", "block until something holds, or can no longer hold"),
    "events": Verb("events", "show what happened, as sentences"),
    "delete": Verb("delete", "stop the work of objects and remove them"),
    "suspend": Verb("suspend", "stop work and start none until resumed"),
    "resume": Verb("suspend", "let suspended work go on"),
    "retry": Verb("retry", "let tasks that ended run again"),
    "rerun": Verb("retry", "run all tasks again on purpose, whatever is known"),
    "set": Verb("setting", "change fields of a stored object, checked as an apply would"),
    "scale": Verb("setting", "let more or fewer tasks run at the same time"),
    "label": Verb("labelling", "add, change or take away labels of stored objects"),
    "annotate": Verb("labelling", "add, change or take away annotations of stored objects"),
    "edit": Verb("editing", "change a stored object in your editor, checked as an apply would"),
    "up": Verb("control", "run the controller"),
    "down": Verb("control", "stop the controller; work goes on"),
    "backup": Verb("system.backup", "copy the state to one file, while work goes on"),
    "restore": Verb("system.backup", "put back the state that `backup` wrote"),
    "status": Verb("control", "tell whether the controller runs, and how much there is"),
    "orphans": Verb("orphans", "find sandboxes that no object remembers, and end them"),
    "doctor": Verb("doctor", "tell what this machine can do, and what would mend the rest"),
    "bundle": Verb("bundle", "pack what a report about a bug needs, without secrets"),
    "init": Verb("init", "write a first manifest that runs as it is"),
    "convert": Verb("convert", "write a file of another tool as a manifest"),
    "explain": Verb("explain", "tell what can stand in a manifest, field by field"),
    "schema": Verb("schema", "print the JSON Schema of a kind"),
    "api-resources": Verb("apiresources", "list the kinds and their short names"),
    "completion": Verb("completion", "print the script that completes words in a shell"),
    "version": Verb("version", "print the version"),
}

# What people who come from kubectl, terraform, docker or SkyPilot type, and what does that here.
SAID_ELSEWHERE = {
    "cancel": "`fleetctl suspend KIND/NAME` stops work and keeps it, `fleetctl delete` removes it",
    "stop": "`fleetctl suspend KIND/NAME` stops work, `fleetctl down` stops the controller",
    "create": "fleetctl apply -f FILE",
    "run": "fleetctl apply -f FILE --wait",
    "launch": "fleetctl apply -f FILE --wait",
    "replace": "fleetctl apply -f FILE",
    "patch": "fleetctl set KIND/NAME FIELD=VALUE",
    "destroy": "fleetctl delete -f FILE",
    "ps": "fleetctl top",
    "list": "fleetctl get all",
    "show": "fleetctl describe KIND/NAME",
    "log": "fleetctl logs KIND/NAME",
    "start": "`fleetctl resume KIND/NAME`; the controller starts with `fleetctl up`",
    "restart": "fleetctl rerun KIND/NAME",
    "attach": "`fleetctl logs KIND/NAME -f` follows, `fleetctl exec KIND/NAME -it bash` enters",
    "ssh": "fleetctl exec KIND/NAME -it bash",
    "shell": "fleetctl exec KIND/NAME -it bash",
    "pause": "fleetctl suspend KIND/NAME",
    "kill": "`fleetctl suspend KIND/NAME` stops work and keeps it, `fleetctl delete` removes it",
    "remove": "fleetctl delete KIND/NAME",
    "tail": "fleetctl logs KIND/NAME -f --tail 20",
    "history": "`fleetctl events KIND/NAME`, or `fleetctl get attempts KIND/NAME`",
    "submit": "fleetctl apply -f FILE",
    "tasks": "fleetctl get tasks KIND/NAME",
    "jobs": "fleetctl get jobs",
    "queue": "`fleetctl get jobs`; `fleetctl get tasks KIND/NAME --queued` lists what waits",
    "serve": "fleetctl up",
    "export": "`fleetctl results KIND/NAME -o csv`; `fleetctl get KIND/NAME -o yaml` the object",
    "download": "`fleetctl cp volume/NAME:/ DIR`, or `fleetctl results KIND/NAME --to DIR`",
    "upload": "fleetctl cp FILE volume/NAME:/",
    "login": "there is no login; `fleetctl doctor` tells what each account lacks",
    "logout": "there is no login; `fleetctl doctor` tells whose credentials are used",
    "inspect": "fleetctl describe KIND/NAME",
    "watch": "`fleetctl get KIND -w`, or `fleetctl apply -f FILE --watch`",
    "ui": "`fleetctl top -w`, or `fleetctl get all -w`",
    "dashboard": "`fleetctl top -w`, or `fleetctl get all -w`",
    "config": "the state is in $FLEETCTL_HOME; `fleetctl status` tells where that is",
}

COMPLETE = "__complete"  # what the scripts of `completion` ask; no verb of people

EXIT_CODES = (
    "0 ok, 1 failed, 2 wrong usage or manifest, 3 refused, 4 not found, 5 conflict,\n"
    "  124 timed out, 130 interrupted (work goes on)"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Never raises, save SystemExit from the interpreter itself."""
    mend_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] != ["up"]:
        gc.set_threshold(GARBAGE_OBJECTS)
    return guarded(words, system_screen(os.environ, no_color="--no-color" in words))


def guarded(words: list[str], screen: Screen) -> int:
    """`dispatch`, with every error told and turned into an exit code."""
    try:
        return _told(words, screen)
    except OSError:  # the output broke while an error was told
        silence_stdout()
        return EXIT_FAILED


def _told(words: list[str], screen: Screen) -> int:
    try:
        code = dispatch(words, screen)
        screen.flush()
        return code
    except FleetctlError as error:
        screen.error(str(error), hint=error.hint)
        return error.exit_code
    except KeyboardInterrupt:
        screen.close_line()
        return EXIT_INTERRUPTED
    except MemoryError:
        screen.error("there is not enough memory for this", hint="ask for less at once")
        return EXIT_FAILED
    except BrokenPipeError:
        silence_stdout()
        return EXIT_OK
    except Exception as error:  # noqa: BLE001 - ours to fix; a person gets a line, the log the rest
        from fleetctl.cli.crash import tell

        tell(error, words, screen)
        return EXIT_USAGE if isinstance(error, UnicodeEncodeError) else EXIT_FAILED


def dispatch(words: list[str], screen: Screen) -> int:
    """The verb's own run. Raises UsageError for what no verb can be meant by."""
    if not words or words[0] in ("-h", "--help", "help"):
        return _help(words[1:], screen)
    if words[0] == COMPLETE:
        from fleetctl.cli import completing

        return completing.run(words[1:], screen)
    if words[0] == "--version":
        words = ["version"]
    verb = VERBS.get(words[0])
    if verb is None:
        raise _unknown_verb(words[0])
    module = import_module(f"fleetctl.cli.{verb.module}")
    parser = module.parser(words[0])
    args = parser.parse(words[1:])
    if args.help:
        screen.data(parser.format_help().rstrip())
        return EXIT_OK
    code: int = module.run(args, screen)
    return code


def _help(words: Sequence[str], screen: Screen) -> int:
    if words and words[0] in VERBS:
        return dispatch([words[0], "--help"], screen)
    if words and not words[0].startswith("-"):
        raise _unknown_verb(words[0])
    longest = max(len(name) for name in VERBS)
    verbs = "\n".join(f"  {name:<{longest}}  {verb.summary}" for name, verb in VERBS.items())
    screen.data(
        "usage: fleetctl VERB [KIND[/NAME] | -f FILE] [flags]\n\n"
        "Declarative infrastructure for AI batch work.\n\n"
        f"verbs:\n{verbs}\n\n"
        "kinds:\n  batchjobs (job, bj)  sweeps (sw)  trainingruns (tr)  volumes (vol)\n"
        "  functions (fn)  budgets (bud)  providers (prov)  secrets\n"
        "  and in them: tasks (t)  attempts (at)\n\n"
        "examples:\n"
        "  fleetctl apply -f sweep.yaml --wait\n"
        "  fleetctl get jobs\n"
        "  fleetctl describe job/chunks\n\n"
        f"exit codes:\n  {EXIT_CODES}\n\n"
        "`fleetctl VERB --help` tells more."
    )
    return EXIT_OK


def _unknown_verb(word: str) -> UsageError:
    from fleetctl.cli.flags import did_you_mean
    from fleetctl.cli.text import safe

    what = "flag" if word.startswith("-") else "verb"
    near = SAID_ELSEWHERE.get(word) or did_you_mean(word, VERBS)
    return UsageError(
        f"fleetctl has no {what} `{safe(word)}`", hint=near or "`fleetctl --help` lists the verbs"
    )


if __name__ == "__main__":
    sys.exit(main())
