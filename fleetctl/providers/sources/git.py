"""Asks git for one commit of a repository, safely: no hooks, no filters, no strange transports, no
options smuggled in.

Called by providers that fetch a source on this machine, and by all that check where it comes from.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.programs import ask
from fleetctl.providers.sources.access import PLAIN, Access
from fleetctl.specs.blocks.template import GitSource

FETCH_S = 600.0
SCHEMES = ("https", "http", "ssh", "git", "file")
RETRY_AFTER_S = 30.0
ERROR_CHARACTERS_MAX = 400

_URL = re.compile(rf"(?:{'|'.join(SCHEMES)})://(?P<host>[^/?#]*)(?P<path>/[^?#]*)?")
_SCP = re.compile(
    r"(?:[A-Za-z0-9._~][A-Za-z0-9._~-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*:(?!:)(?!//)[^-\s].*"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHORT = re.compile(r"[0-9a-f]{7,39}")
_BAD_REF = re.compile(r"[\x00-\x20~^:?*\[\\\x7f]|\.\.|@\{|^-|^/|/$|\.lock$|//")
_UNKNOWN = ("couldn't find remote ref", "not our ref", "unadvertised object", "no such ref")

# Nothing of the user's or the machine's git configuration applies, and nothing of the repository's
# runs.
_OPTIONS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.symlinks": "true",
    "protocol.ext.allow": "never",
    "filter.lfs.smudge": "",
    "filter.lfs.process": "",
    "filter.lfs.required": "false",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "transfer.fsckObjects": "false",
    "gc.auto": "0",
    "advice.detachedHead": "false",
}


def check(source: GitSource) -> None:
    """Raises Refused for a url or ref that git must never see."""
    url, ref = source.url, source.ref
    message = url[:200].encode("unicode_escape").decode()
    if any(ord(character) < 0x21 or ord(character) == 0x7F for character in url):
        raise Refused(
            f"source.git.url `{message}` has a space or a control character", hint=_URL_HINT
        )
    match = _URL.fullmatch(url)
    if match is None and not _SCP.fullmatch(url):
        raise Refused(
            f"source.git.url `{message}` is not a url that git may fetch from", hint=_URL_HINT
        )
    if match is not None and (match["host"].startswith("-") or "@-" in match["host"]):
        raise Refused(
            f"source.git.url `{message}` has a host that git would read as an option",
            hint=_URL_HINT,
        )
    if ref is not None and _BAD_REF.search(ref):
        message = ref[:200].encode("unicode_escape").decode()
        raise Refused(
            f"source.git.ref `{message}` is not a name git allows",
            hint="a branch, a tag or a commit",
        )


def directory_name(url: str) -> str:
    """The last part of the url, as `git clone` would call the directory."""
    last = re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")
    return re.sub(r"[^A-Za-z0-9._-]", "-", last).lstrip(".-") or "source"


def host(url: str) -> str:
    """`example.org:8080`, as git names it to who knows a password; "" for a path."""
    match = _URL.fullmatch(url)
    return match["host"].rpartition("@")[2] if match is not None else ""


def is_commit(ref: str | None) -> bool:
    """Whether it is a whole commit, and so no name."""
    return ref is not None and _COMMIT.fullmatch(ref) is not None


async def resolve(source: GitSource, access: Access = PLAIN) -> str:
    """The commit behind the ref, as the remote tells it."""
    ref = source.ref
    if ref is not None and is_commit(ref):
        return ref
    wanted = (
        ["HEAD"]
        if ref is None
        else [f"refs/heads/{ref}", f"refs/tags/{ref}", f"refs/tags/{ref}^{{}}", ref]
    )
    output = await run(["ls-remote", "--", source.url, *wanted], source, cwd=None, access=access)
    rows = [line.split("	", 1) for line in output.splitlines() if "	" in line]
    found = {name: commit for commit, name in rows}
    for name in reversed(wanted[:3]):
        if name in found:
            return found[name]
    if ref is not None and _SHORT.fullmatch(ref):
        raise Refused(
            f"source.git.ref `{ref}` looks like a shortened commit, which cannot be fetched",
            hint="give all 40 digits",
        )
    raise Refused(
        f"source.git.ref `{ref or 'HEAD'}` is not in {shown(source.url)}",
        hint=f"git ls-remote {shown(source.url)}",
    )


async def fetch(source: GitSource, commit: str, tree: Path) -> None:
    """Fill the empty directory `tree` with a repository at that commit."""
    await run(["init", "--quiet", "--template=", "."], source, cwd=tree)
    await run(
        ["fetch", "--quiet", "--depth=1", "--no-tags", "--", source.url, commit], source, cwd=tree
    )
    await run(["checkout", "--quiet", "--detach", "FETCH_HEAD"], source, cwd=tree)
    if source.submodules:
        update = ["submodule", "update", "--quiet", "--init", "--recursive", "--depth=1"]
        await run(update, source, cwd=tree)


async def run(
    arguments: list[str], source: GitSource, *, cwd: Path | None, access: Access = PLAIN
) -> str:
    """The output of one git command. Raises Refused or Unavailable."""
    pairs = (*_OPTIONS.items(), *access.options)
    options = [part for key, value in pairs for part in ("-c", f"{key}={value}")]
    try:
        answer = await ask(
            ["git", *options, *arguments],
            deadline_s=FETCH_S,
            cwd=cwd or "/",
            env=_environment() | dict(access.environment),
        )
    except FileNotFoundError as error:
        raise Refused("source.git needs the program `git`", hint="install git") from error
    except TimeoutError as error:
        raise Unavailable(
            f"{shown(source.url)} did not answer within {FETCH_S:.0f} s",
            retry_after_s=RETRY_AFTER_S,
        ) from error
    if answer.code:
        raise _failure(source, answer.errors.decode("utf-8", "replace"))
    return answer.out.decode("utf-8", "replace")


def _failure(source: GitSource, message: str) -> Refused | Unavailable:
    text = " ".join(message.split()).replace(source.url, shown(source.url))[-ERROR_CHARACTERS_MAX:]
    if any(sign in message for sign in _UNKNOWN):
        return Refused(
            f"source.git.ref `{source.ref}` is not in {shown(source.url)}",
            hint=f"git ls-remote {shown(source.url)}",
        )
    return Unavailable(
        f"{shown(source.url)} cannot be fetched: {text}",
        retry_after_s=RETRY_AFTER_S,
        reason="SourceUnreachable",
    )


def shown(url: str) -> str:
    """The url without a password."""
    return re.sub(r"//[^/@]*@", "//", url)


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return kept | {
        "GIT_ALLOW_PROTOCOL": ":".join(SCHEMES),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "SSH_ASKPASS": "true",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_ATTR_NOSYSTEM": "1",
    }


# What reaching a remote may need: programs, keys and proxies. Nothing that configures git.
_KEPT = (
    *("PATH", "HOME", "LANG", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
_URL_HINT = f"write {', '.join(f'{scheme}://' for scheme in SCHEMES)} or user@host:path"
