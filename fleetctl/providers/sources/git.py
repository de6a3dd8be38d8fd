"""Asks git for one commit of a repository, safely: no hooks, no filters, no strange transports, no
options smuggled in.

Called by providers that fetch a source on this machine, and by all that check where it comes from.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

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


def is_short(ref: str | None) -> bool:
    """Whether it may be a commit by its first digits."""
    return ref is not None and _SHORT.fullmatch(ref) is not None


def is_commit(ref: str | None) -> bool:
    """Whether it is a whole commit, and so no name."""
    return ref is not None and _COMMIT.fullmatch(ref) is not None


@dataclass(frozen=True, slots=True)
class Found:
    """doubt: a sentence about what else the name could have meant; or empty."""

    commit: str
    doubt: str = ""


async def resolve(source: GitSource, access: Access = PLAIN) -> str:
    """The commit behind the ref, as the remote tells it. Raises Refused for one that it does not
    have, and Unavailable.
    """
    return (await find(source, access)).commit


async def find(source: GitSource, access: Access = PLAIN) -> Found:
    """As `resolve`. Of a tag and a branch of one name the tag is meant, as git has it."""
    ref = source.ref
    if ref is not None and is_commit(ref):
        return Found(ref)
    wanted = _names_of(ref)
    patterns = [] if is_short(ref) else wanted
    output = await run(["ls-remote", "--", source.url, *patterns], source, cwd=None, access=access)
    rows = [line.split("\t", 1) for line in output.splitlines() if "\t" in line]
    known = {name: commit for commit, name in rows}
    for name in wanted:
        if name in known:
            return Found(known[name], _doubt(ref or "", known))
    if ref is not None and is_short(ref):
        near = {commit for commit in known.values() if commit.startswith(ref)}
        return Found(near.pop() if len(near) == 1 else await _in_history(source, ref, access))
    raise Refused(
        f"source.git.ref `{ref or 'HEAD'}` is not in {shown(source.url)}",
        hint=f"git ls-remote {shown(source.url)}",
    )


def _names_of(ref: str | None) -> list[str]:
    """Full names that a ref may be short for, the first that is there is meant. `^{}` is the commit
    behind a tag.
    """
    if ref is None:
        return ["HEAD"]
    if ref.startswith("refs/"):
        return [f"{ref}^{{}}", ref]
    return [f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}"]


def _doubt(ref: str, known: Mapping[str, str]) -> str:
    branch, tag = known.get(f"refs/heads/{ref}"), known.get(f"refs/tags/{ref}")
    commit = known.get(f"refs/tags/{ref}^{{}}", tag)
    if branch is None or tag is None or branch == commit:
        return ""
    return (
        f"source.git.ref `{ref}` is a tag and a branch there, and the tag is taken;"
        f" `refs/heads/{ref}` is the branch, `refs/tags/{ref}` the tag"
    )


async def _in_history(source: GitSource, short: str, access: Access) -> str:
    """A commit by its first digits, out of all that branches and tags hold. Raises Refused."""
    with TemporaryDirectory(prefix="fleetctl-") as place:
        tree = Path(place)
        await run(["init", "--quiet", "--bare", "--template=", "."], source, cwd=tree)
        refs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
        words = ["fetch", "--quiet", "--filter=tree:0", "--no-tags", "--", source.url, *refs]
        await run(words, source, cwd=tree, access=access)
        listed = await run(["rev-list", "--all"], source, cwd=tree)
    found = [commit for commit in listed.split() if commit.startswith(short)]
    if len(found) == 1:
        return found[0]
    several = f"{len(found)} commits begin with it" if found else "no commit begins with it"
    raise Refused(
        f"source.git.ref `{short}` is not in {shown(source.url)}: {several}",
        hint="give all 40 digits",
    )


async def fetch(source: GitSource, commit: str, tree: Path) -> None:
    """Fill the empty directory `tree` with a repository at that commit, or with that one directory
    of it which the source names. Raises Refused and Unavailable.
    """
    access = PLAIN.with_options(("remote.origin.url", source.url))
    if source.lfs:
        access = with_lfs(access)

    async def do(*words: str, by: Access = PLAIN) -> None:
        await run([*words], source, cwd=tree, access=by)

    await do("init", "--quiet", "--template=", ".")
    await do("fetch", "--quiet", "--depth=1", "--no-tags", "--", source.url, commit)
    update = ["submodule", "update", "--quiet", "--init", "--recursive", "--depth=1"]
    if source.path is None:
        await do("checkout", "--quiet", "--detach", "FETCH_HEAD", by=access)
    else:
        await check_directory(source, commit, tree)
        # Attributes and submodules are told at the top.
        await do("update-ref", "--no-deref", "HEAD", "FETCH_HEAD")
        await do("read-tree", "FETCH_HEAD")
        listed = await run(["ls-files", "-z", "--", ".gitmodules"], source, cwd=tree)
        tops = [".gitmodules"] if listed and source.submodules else []
        literal = ["--literal-pathspecs", "checkout", "--quiet", "--"]
        await do(*literal, source.path, *tops, by=access)
        update += ["--", source.path]
    if source.submodules:
        await do(*update, by=access)


async def check_directory(source: GitSource, commit: str, tree: Path) -> str:
    """The id of what `path` holds at the commit that was fetched. Raises Refused where there is no
    such directory.
    """
    path = posixpath.normpath(source.path or ".")
    name = "FETCH_HEAD^{tree}" if path == "." else f"FETCH_HEAD:{path}"
    try:
        found = await run(["rev-parse", "--verify", "--quiet", name], source, cwd=tree)
        sort = await run(["cat-file", "-t", found.strip()], source, cwd=tree)
    except Unavailable:
        sort = ""
    if sort.strip() != "tree":
        what = "is a file" if sort.strip() == "blob" else "is no directory"
        raise Refused(
            f"source.git.path `{source.path}` {what} at {commit[:7]}",
            hint="name a directory from the top of the repository",
        )
    return found.strip()


def with_lfs(access: Access) -> Access:
    """Files of Git LFS are fetched. Raises Refused where the program is missing."""
    check_lfs()
    return access.with_options(
        ("filter.lfs.process", "git-lfs filter-process"),
        ("filter.lfs.smudge", "git-lfs smudge -- %f"),
        ("filter.lfs.required", "true"),
        GIT_LFS_SKIP_SMUDGE="0",
    )


def check_lfs() -> None:
    """Raises Refused where this machine cannot fetch files of Git LFS."""
    if shutil.which("git-lfs") is None:
        raise Refused("`git.lfs` needs the program `git-lfs`", hint="install git-lfs")


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
