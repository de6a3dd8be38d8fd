"""The entry point: finds the verb, loads its module alone, turns errors into a line and an exit
code.

Called by the console script. Imports only modules that a verb needs: start-up time is a feature.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from fleetctl.cli.command.verbs import (
    EXIT_CODES,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    GROUPS,
    OTHER_TOOL_VERBS,
    VERBS,
    CommandVerb,
)
from fleetctl.cli.output.screen import Screen, open_closed_streams, silence_stdout, system_screen
from fleetctl.cli.team.choose_server import FLAG, take_flag, use_server
from fleetctl.common.errors import FleetctlError, UsageError
from fleetctl.common.remote import REMOTE

# Python looks for garbage every 700 objects, in all existing ones: a quarter of the time of a list
# of 10,000. A command makes little garbage and ends soon; the controller keeps Python's setting.
GARBAGE_OBJECTS = 100_000


# The shell may write the output of these verbs into a file of a source directory. The file is
# recorded, so that the next apply does not take it for a change of the program.
REPORTS = frozenset(
    ("results", "plot", "query", "cost", "graph", "plan", "get", "describe", "events", "top")
)
COMPLETE = "__complete"  # called by the scripts of `completion`; no verb for users


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Never raises, save SystemExit from the
    interpreter itself."""
    open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] != ["up"]:
        gc.set_threshold(GARBAGE_OBJECTS)
    return run_guarded(words, system_screen(os.environ, no_color="--no-color" in words))


def run_guarded(words: list[str], screen: Screen) -> int:
    """Runs `dispatch`, with every error printed and turned into an exit code."""
    try:
        return _run_reporting_errors(words, screen)
    except OSError:  # the output broke while an error was printed
        silence_stdout()
        return EXIT_FAILED


def _run_reporting_errors(words: list[str], screen: Screen) -> int:
    try:
        code = dispatch_verb(words, screen)
        screen.flush()
        if words and words[0] in REPORTS:
            from fleetctl.tracking.written_files import note_output

            note_output()
        return code
    except FleetctlError as error:
        screen.report(error)
        return error.exit_code
    except KeyboardInterrupt:
        screen.close_line()
        if words[:1] == ["apply"]:  # an apply that was sent prints that itself
            screen.talk("interrupted; nothing was stored")
        return EXIT_INTERRUPTED
    except MemoryError:
        screen.error("there is not enough memory for this", hint="ask for less at once")
        return EXIT_FAILED
    except BrokenPipeError:
        silence_stdout()
        return EXIT_OK
    except Exception as error:  # noqa: BLE001 - a bug: one line for users, its traceback in a log
        from fleetctl.cli.command.crash import report_crash

        report_crash(error, words, screen)
        return EXIT_USAGE if isinstance(error, UnicodeEncodeError) else EXIT_FAILED


def dispatch_verb(words: list[str], screen: Screen) -> int:
    """Runs the verb. Raises UsageError for words that name no verb."""
    if not words or words[0] in ("-h", "--help", "help"):
        return _print_help(words[1:], screen)
    if words[0] == COMPLETE:
        from fleetctl.cli.learn import complete

        return complete.run(words[1:], screen)
    if words[0] == "--version":
        words = ["version"]
    words, server = take_flag(words)
    verb = VERBS.get(words[0]) if words else None
    if verb is None:
        raise _unknown_verb(words[0] if words else FLAG)
    used = use_server(words, server)
    try:
        return _run_verb(verb, words, screen)
    finally:
        if used is not None:
            REMOTE.reset(used)


def _run_verb(
    verb: CommandVerb,
    words: list[str],
    screen: Screen,
) -> int:
    module = import_module(f"fleetctl.cli.{verb.module}")
    parser = module.parser(words[0])
    args = parser.parse(words[1:])
    if args.help:
        screen.data(parser.format_help().rstrip())
        return EXIT_OK
    code: int = module.run(args, screen)
    return code


def _print_help(words: Sequence[str], screen: Screen) -> int:
    if words and words[0] in VERBS:
        return dispatch_verb([words[0], "--help"], screen)
    if words and not words[0].startswith("-"):
        raise _unknown_verb(words[0])
    screen.data(
        "usage: fleetctl VERB [KIND[/NAME] | -f FILE] [flags]\n\n"
        "Declarative infrastructure for AI batch work.\n\n"
        f"{_format_verbs()}\n\n"
        f"kinds:\n{_format_kinds()}\n  and in them: tasks (t), attempts (at)\n\n"
        "examples:\n"
        "  fleetctl apply -f sweep.yaml --wait\n"
        "  fleetctl get jobs\n"
        "  fleetctl describe job/chunks\n\n"
        f"exit codes:\n  {EXIT_CODES}\n\n"
        "`fleetctl VERB --help` shows more."
    )
    return EXIT_OK


def _format_verbs() -> str:
    """Returns the verbs under their headings, as kubectl has them."""
    longest = max(len(name) for name in VERBS)
    return "\n\n".join(
        "\n".join(
            [f"{heading}:", *(f"  {name:<{longest}}  {VERBS[name].summary}" for name in names)]
        )
        for heading, names in GROUPS.items()
    )


def _format_kinds() -> str:
    """Returns all kinds of the registry with the first of their other names and their summaries,
    within 80 columns."""
    from textwrap import fill

    from fleetctl.specs.kinds.registry import KINDS

    named = {
        f"{kind.plural} ({kind.short[0]})" if kind.short else kind.plural: kind.summary
        for kind in KINDS.values()
    }
    longest = max(map(len, named))
    indent = " " * (longest + 4)
    return "\n".join(
        fill(summary, 80, initial_indent=f"  {name:<{longest}}  ", subsequent_indent=indent)
        for name, summary in named.items()
    )


def _unknown_verb(word: str) -> UsageError:
    from fleetctl.common.text import did_you_mean, escape_line

    what = "flag" if word.startswith("-") else "verb"
    near = OTHER_TOOL_VERBS.get(word) or did_you_mean(word, VERBS)
    return UsageError(
        f"fleetctl has no {what} `{escape_line(word)}`",
        hint=near or "`fleetctl --help` lists the verbs",
    )


if __name__ == "__main__":
    sys.exit(main())
