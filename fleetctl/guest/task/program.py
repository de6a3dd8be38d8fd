"""Turns a prepared process into the user's program, or explains why that is not possible.

Called in the forked child by supervisors of runs, and by the host for the messages alone.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Mapping, NoReturn, Optional, Sequence

    Tell = Callable[[Dict[str, Any]], None]

DISK_FULL = "DiskFull"  # why no program could begin, through no fault of the task
SHELL_CHARACTERS = frozenset(" \t\n;&|<>$`*(){}\"'")
SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1", "2>", "&>"})
SHOWN_CHARACTERS_MAX = 80


# The reason of a run whose program is missing: another attempt would miss it, too.
COMMAND_NOT_FOUND = "CommandNotFound"


class CommandMissing(OSError):
    """A program that is missing, or not executable."""


def enter_directory(directory: str, workdir: Optional[str]) -> None:
    """Changes into the task's directory. Raises OSError with a message for the user."""
    try:
        os.chdir(directory)
    except OSError as error:
        raise OSError(cannot_enter(directory, workdir, str(error.strerror))) from None


def cannot_enter(
    directory: str,
    workdir: Optional[str],
    why: str,
) -> str:
    if not workdir:
        return f"the task cannot begin in `{directory}`: {why}"
    return (
        f"workdir `{workdir}` cannot be entered: {why} (`{directory}` in the sandbox);"
        " it must be a directory of the source, of the image or of a volume"
    )


def run_guarded(work: Callable[[], NoReturn], tell: Optional[Tell] = None) -> NoReturn:
    """Does work that never returns, in a process that was forked for it: no exception reaches the
    code of its parent. tell: sends one event to the run's supervisor.
    """
    code = 127
    try:
        work()
    except (OSError, ValueError) as error:
        if tell is not None:
            tell({"e": "error", **start_failure(error)})
        os.write(2, f"fleetctl: {error}\n".encode())
    except BaseException:
        code = 70
        import traceback

        os.write(2, traceback.format_exc().encode())
    os._exit(code)


def start_failure(error: Exception) -> Dict[str, str]:
    """Explains why no program could begin: the task's own fault, unless the disk is full."""
    if isinstance(error, CommandMissing):
        return {"reason": COMMAND_NOT_FOUND, "message": str(error)}
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return {"reason": DISK_FULL if full else "StartFailed", "message": str(error)}


def replace_process(argv: Sequence[str], variables: Mapping[str, str]) -> NoReturn:
    """Replaces the process by a program. Raises OSError with a message for the user."""
    path = variables.get("PATH", os.defpath)
    places = [argv[0]] if "/" in argv[0] else [f"{one or '.'}/{argv[0]}" for one in path.split(":")]
    refused: Optional[tuple[str, OSError]] = None
    for program in places:
        try:
            os.execve(program, list(argv), variables)  # no shell is the point
        except (FileNotFoundError, NotADirectoryError) as error:
            if refused is None and os.path.lexists(program):
                refused = (program, error)
        except OSError as error:
            refused = refused or (program, error)
    if refused is not None:
        raise CommandMissing(_explain_refusal(argv[0], *refused))
    raise CommandMissing(not_found(argv, f"PATH, which is {path}"))


def not_found(argv: Sequence[str], looked: str) -> str:
    """Explains that a program is missing. looked: where, as the user knows it."""
    program = argv[0]
    if SHELL_CHARACTERS.intersection(program) or SHELL_WORDS.intersection(argv):
        text = " ".join(argv)
        text = text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "…"
        return (
            f"command `{program}` was not found: `command` is a program and its arguments, which"
            f" no shell reads; shell text is `script: {text}`"
        )
    if "/" in program:
        return f"command `{program}` was not found in the sandbox"
    return f"command `{program}` was not found (looked in {looked})"


def not_executable(name: str) -> str:
    return (
        f"command `{name}` cannot be started: Permission denied; make it executable with"
        f" `chmod +x`, or start what reads it: [sh, {name}]"
    )


def _explain_refusal(
    name: str,
    program: str,
    error: OSError,
) -> str:
    start = f"command `{name}` cannot be started"
    if os.path.isdir(program):
        return f"{start}: it is a directory"
    if isinstance(error, FileNotFoundError):
        return f"{start}: the program that its first line names is not there"
    if isinstance(error, PermissionError):
        return not_executable(name)
    message = f"{start}: {error.strerror}"
    if error.errno == ENOEXEC:
        return f"{message}; a script begins with a line such as `#!/bin/sh`"
    return message


ENOEXEC = 8  # of Linux and macOS
