"""Runs git for the sandbox, and tells its failures apart as the daemon does.

Git runs beside the box, on the box's files: what the sandbox would reach over the network is the
host's, so a `file://` remote may be a directory of the host as well as one of the box. Credentials
travel in the environment: never in an argument, a URL that is kept, or an error.

Where the network is missing, a mirror stands in for a host: start the emulator with
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.file:///mirror/.insteadOf GIT_CONFIG_VALUE_0=https://host/
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .calls import Toolbox
from .errors import ToolboxError

TAIL_CHARS = 4000  # of git's own words in an error
# First match wins: the words that git says, the status, and the code of the daemon.
FAILURES: tuple[tuple[tuple[str, ...], int, str], ...] = (
    (
        ("authentication failed", "could not read username", "could not read password"),
        401,
        "GIT_AUTH_FAILED",
    ),
    (("returned error: 403",), 403, "FORBIDDEN"),
    # A branch that is missing is said beside other words, so it comes before the repository.
    (
        ("remote branch", "known to git", "unknown revision", "couldn't find remote ref"),
        404,
        "GIT_BRANCH_NOT_FOUND",
    ),
    (
        ("src refspec", "not a valid object name", "reference is not a tree", "invalid reference"),
        404,
        "GIT_BRANCH_NOT_FOUND",
    ),
    (
        ("repository not found", "does not exist", "does not appear to be a git", "error: 404"),
        404,
        "GIT_REPO_NOT_FOUND",
    ),
    (("not a git repository", "cannot change to"), 404, "GIT_REPO_NOT_FOUND"),
    (("did not match any files", "not an empty directory"), 400, "BAD_REQUEST"),
    (
        ("a valid ", "invalid ", "does not contain", "usage:", "work tree", "any commits yet"),
        400,
        "BAD_REQUEST",
    ),
    (("branch named",), 409, "GIT_BRANCH_EXISTS"),
    (("pre-receive hook declined", "remote rejected"), 422, "GIT_REMOTE_REJECTED"),
    (("non-fast-forward", "fetch first", "stale info"), 409, "GIT_PUSH_REJECTED"),
    (("would be overwritten", "commit your changes or stash"), 409, "GIT_DIRTY_WORKTREE"),
    (("merge conflict", "unmerged files", "divergent branches"), 409, "GIT_MERGE_CONFLICT"),
    (
        ("could not resolve host", "failed to connect", "connection refused", "timed out"),
        502,
        "GIT_TRANSPORT_FAILED",
    ),
)


@dataclass(frozen=True, slots=True)
class Credentials:
    username: str
    password: str

    def header(self) -> str:
        pair = f"{self.username}:{self.password}".encode()
        return f"Authorization: Basic {base64.b64encode(pair).decode()}"


class GitFailed(Exception):
    """Git ended with `code`; the text is what it wrote."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


async def git(
    toolbox: Toolbox,
    directory: str | None,
    words: Sequence[str],
    *,
    credentials: Credentials | None = None,
    settings: Mapping[str, str] | None = None,
) -> str:
    """Git's standard output. `directory` is a box path. Raises ToolboxError by its failure."""
    try:
        return await run(toolbox, directory, words, credentials=credentials, settings=settings)
    except GitFailed as failure:
        raise explained(words[0], failure) from failure


async def run(
    toolbox: Toolbox,
    directory: str | None,
    words: Sequence[str],
    *,
    credentials: Credentials | None = None,
    settings: Mapping[str, str] | None = None,
) -> str:
    """As `git`, for a caller that knows better what a failure means. Raises GitFailed."""
    wanted = {"safe.directory": "*", "protocol.file.allow": "always", **(settings or {})}
    if credentials is not None:
        wanted["http.extraHeader"] = credentials.header()
    cwd = _repository(toolbox, directory) if directory is not None else toolbox.box.root
    process = await asyncio.create_subprocess_exec(
        "git",
        *words,
        cwd=cwd,
        env=_environment(toolbox, wanted),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, problems = await process.communicate()
    if process.returncode:
        text = (problems + output).decode(errors="replace").strip()
        # The sandbox knows its files by its own paths.
        raise GitFailed(process.returncode, text.replace(str(toolbox.box.root), ""))
    return output.decode(errors="replace")


def explained(verb: str, failure: GitFailed) -> ToolboxError:
    text = str(failure)
    sentence = text.lower()
    message = f"git {verb} exited with status {failure.code}: {text[-TAIL_CHARS:]}"
    for words, status, code in FAILURES:
        if any(word in sentence for word in words):
            return ToolboxError(status, message, code=code)
    return ToolboxError(500, message)


def remote_settings(toolbox: Toolbox, url: str) -> dict[str, str]:
    """A remote that lies in the box is read where it lies on the host; its URL stays as it is."""
    host = place_in_box(toolbox, url)
    return {f"url.{host}.insteadOf": url} if host else {}


def place_in_box(toolbox: Toolbox, url: str) -> Path | None:
    path = url.removeprefix("file://")
    if path.startswith("/") and toolbox.host(path).is_dir():
        return toolbox.host(path)
    return None


def _repository(toolbox: Toolbox, directory: str) -> Path:
    host = toolbox.host(directory)
    if not host.is_dir():
        text = f"repository does not exist: {directory}"
        raise ToolboxError(404, text, code="GIT_REPO_NOT_FOUND")
    return host


def _environment(toolbox: Toolbox, settings: Mapping[str, str]) -> dict[str, str]:
    box = toolbox.box.env
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(toolbox.host(toolbox.home)),
        "LANG": "C.UTF-8",
        "GIT_TERMINAL_PROMPT": "0",
        # Git would look for a repository above the sandbox's tree otherwise, and find the host's.
        "GIT_CEILING_DIRECTORIES": str(toolbox.box.directory),
        **{name: value for name, value in os.environ.items() if _of_network(name)},
        **{name: value for name, value in box.items() if name.startswith("GIT_")},
    }
    first = int(env.get("GIT_CONFIG_COUNT", "0"))
    for number, (key, value) in enumerate(settings.items(), start=first):
        env[f"GIT_CONFIG_KEY_{number}"] = key
        env[f"GIT_CONFIG_VALUE_{number}"] = value
    env["GIT_CONFIG_COUNT"] = str(first + len(settings))
    return env


def _of_network(name: str) -> bool:
    """Variables of the emulator that say how remotes are reached; GIT_DIR and its like do not."""
    return name.startswith(("GIT_CONFIG", "GIT_SSL")) or name.lower().endswith("_proxy")
