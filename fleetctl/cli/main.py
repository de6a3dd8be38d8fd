"""The entry point: find the verb, load its module alone, turn errors into a line and an exit code.

Called by the console script. Imports nothing that a verb does not need: start-up time is a feature.
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
    SAID_ELSEWHERE,
    VERBS,
)
from fleetctl.cli.output.render import Screen, mend_streams, silence_stdout, system_screen
from fleetctl.common.errors import FleetctlError, UsageError

# Python looks for garbage every 700 objects, in all that there are: a quarter of the time of a list
# of 10,000. A command makes little garbage and ends soon; the controller keeps Python's setting.
GARBAGE_OBJECTS = 100_000


# What these print, a shell may put into a file beside a program; that is no part of it.
REPORTS = frozenset(
    ("results", "plot", "query", "cost", "graph", "plan", "get", "describe", "events", "top")
)
COMPLETE = "__complete"  # what the scripts of `completion` ask; no verb of people


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
        if words and words[0] in REPORTS:
            from fleetctl.tracking.written import note_output

            note_output()
        return code
    except FleetctlError as error:
        screen.error(str(error), hint=error.hint)
        return error.exit_code
    except KeyboardInterrupt:
        screen.close_line()
        if words[:1] == ["apply"]:  # one that was sent says so itself
            screen.talk("interrupted; nothing was stored")
        return EXIT_INTERRUPTED
    except MemoryError:
        screen.error("there is not enough memory for this", hint="ask for less at once")
        return EXIT_FAILED
    except BrokenPipeError:
        silence_stdout()
        return EXIT_OK
    except Exception as error:  # noqa: BLE001 - ours to fix; a person gets a line, the log the rest
        from fleetctl.cli.command.crash import tell

        tell(error, words, screen)
        return EXIT_USAGE if isinstance(error, UnicodeEncodeError) else EXIT_FAILED


def dispatch(words: list[str], screen: Screen) -> int:
    """The verb's own run. Raises UsageError for what no verb can be meant by."""
    if not words or words[0] in ("-h", "--help", "help"):
        return _help(words[1:], screen)
    if words[0] == COMPLETE:
        from fleetctl.cli.learn import complete

        return complete.run(words[1:], screen)
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
    screen.data(
        "usage: fleetctl VERB [KIND[/NAME] | -f FILE] [flags]\n\n"
        "Declarative infrastructure for AI batch work.\n\n"
        f"{_verbs()}\n\n"
        f"kinds:\n{_kinds()}\n  and in them: tasks (t), attempts (at)\n\n"
        "examples:\n"
        "  fleetctl apply -f sweep.yaml --wait\n"
        "  fleetctl get jobs\n"
        "  fleetctl describe job/chunks\n\n"
        f"exit codes:\n  {EXIT_CODES}\n\n"
        "`fleetctl VERB --help` tells more."
    )
    return EXIT_OK


def _verbs() -> str:
    """Under their headings, as kubectl has them."""
    longest = max(len(name) for name in VERBS)
    return "\n\n".join(
        "\n".join(
            [f"{heading}:", *(f"  {name:<{longest}}  {VERBS[name].summary}" for name in names)]
        )
        for heading, names in GROUPS.items()
    )


def _kinds() -> str:
    """All of the registry with the first of their other names, within 80 columns."""
    from textwrap import fill

    from fleetctl.specs.kinds.registry import KINDS

    named = (
        f"{kind.plural} ({kind.short[0]})" if kind.short else kind.plural for kind in KINDS.values()
    )
    text = ", ".join(it.replace(" ", "~") for it in named)  # a name stays on one line
    indent = "  "
    return fill(text, 80, initial_indent=indent, subsequent_indent=indent).replace("~", " ")


def _unknown_verb(word: str) -> UsageError:
    from fleetctl.common.text import did_you_mean, safe

    what = "flag" if word.startswith("-") else "verb"
    near = SAID_ELSEWHERE.get(word) or did_you_mean(word, VERBS)
    return UsageError(
        f"fleetctl has no {what} `{safe(word)}`", hint=near or "`fleetctl --help` lists the verbs"
    )


if __name__ == "__main__":
    sys.exit(main())
