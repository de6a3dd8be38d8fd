"""Asks git for one commit of a repository, safely: no hooks, no filters, no strange transports;
with a token, a key and the trusted hosts for that repository alone.

No secret is ever an argument of a program, where others could see it.
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.programs import run_program
from fleetctl.specs.blocks.template import GitSource

TOKEN, PASSWORD, USERNAME, KEY = "GIT_TOKEN", "GIT_PASSWORD", "GIT_USERNAME", "GIT_SSH_KEY"
# GitHub wants this name beside a token; GitLab, Gitea and Bitbucket take any.
ANY_USERNAME = "x-access-token"
# Only git's own question for this very host is answered.
_HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n"'
    ' "$FLEETCTL_GIT_USERNAME" "$FLEETCTL_GIT_PASSWORD"; }; f'
)
SSH = ("ssh", "-oBatchMode=yes", "-oStrictHostKeyChecking=yes")

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

# As git-lfs reports a file that its remote does not keep, over HTTP and from a directory.
_LFS_MISSING = re.compile(
    r"Error downloading object: (?P<file>\S.*?) \([0-9a-f]+\):"
    r".*(?:missing object|does not exist on the server|\[404\])"
)

# No git configuration of the user or the machine applies, and no program of the repository runs.
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


@dataclass(frozen=True, slots=True)
class GitAccess:
    """The access of git to a repository. options: of git's configuration, without secrets."""

    options: tuple[tuple[str, str], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def with_options(self, *options: tuple[str, str], **environment: str) -> GitAccess:
        return GitAccess((*self.options, *options), {**self.environment, **environment})


PLAIN = GitAccess()


def access_to(
    url: str,
    values: Mapping[str, str],
    place: Path,
    *,
    known_hosts: Sequence[str] = (),
) -> GitAccess:
    """Returns the access by a Secret's values. values: of the Secret that a Source names. place: a
    private directory for the files that ssh reads; the caller removes it. Raises Refused where a
    value cannot be meant for this url.
    """
    scheme = urlsplit(url).scheme if "://" in url else "ssh"
    access = PLAIN
    if values.get(TOKEN) or values.get(PASSWORD):
        if scheme != "https":
            raise Refused(
                f"a token is not sent over `{scheme}`", hint="write the url with https://"
            )
        access = _use_token(url, values)
    if scheme == "ssh":
        access = _use_ssh_key(values.get(KEY, ""), place, known_hosts)
    return access.with_options(("remote.origin.url", url))


def _use_token(url: str, values: Mapping[str, str]) -> GitAccess:
    host = urlsplit(url).netloc.rpartition("@")[2]
    options = (
        ("credential.helper", ""),
        (f"credential.https://{host}.helper", _HELPER),
        # Another host would be asked for by name, and never get this; an error is better than a
        # try.
        ("http.followRedirects", "false"),
    )
    environment = {
        "FLEETCTL_GIT_USERNAME": values.get(USERNAME) or ANY_USERNAME,
        "FLEETCTL_GIT_PASSWORD": values.get(TOKEN) or values[PASSWORD],
    }
    return GitAccess(options, environment)


def _use_ssh_key(
    key: str,
    place: Path,
    known_hosts: Sequence[str],
) -> GitAccess:
    words = [*SSH]
    if known_hosts:
        hosts = _write_private(place / "known_hosts", "\n".join(known_hosts))
        words += [f"-oUserKnownHostsFile={hosts}", f"-oGlobalKnownHostsFile={os.devnull}"]
    if key:
        words += ["-oIdentitiesOnly=yes", "-i", str(_write_private(place / "key", key))]
    return GitAccess((), {"GIT_SSH_COMMAND": shlex.join(words)})


def _write_private(path: Path, text: str) -> Path:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text.rstrip("\n") + "\n")
    return path


def check_source(source: GitSource) -> None:
    """Raises Refused for a url or ref that git must never see."""
    url = source.url
    ref = source.ref
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


def url_host(url: str) -> str:
    """`example.org:8080`, as git names it to who knows a password; "" for a path."""
    match = _URL.fullmatch(url)
    if match is not None:
        return match["host"].rpartition("@")[2]
    return ""


def is_short(ref: str | None) -> bool:
    """Returns whether it may be a commit by its first digits."""
    return ref is not None and _SHORT.fullmatch(ref) is not None


def is_commit(ref: str | None) -> bool:
    """Returns whether it is a whole commit, and so no name."""
    return ref is not None and _COMMIT.fullmatch(ref) is not None


@dataclass(frozen=True, slots=True)
class RefMatch:
    """The commit that a ref matches. doubt: a sentence about what else the name could have meant;
    or empty.
    """

    commit: str
    doubt: str = ""


async def resolve_commit(source: GitSource, access: GitAccess = PLAIN) -> str:
    """Returns the commit behind the ref, as the remote reports it. Raises Refused for an unknown
    ref, and Unavailable.
    """
    return (await find_ref(source, access)).commit


async def find_ref(source: GitSource, access: GitAccess = PLAIN) -> RefMatch:
    """Finds a ref as `resolve_commit` does. Where a tag and a branch have one name, the tag is
    meant, as in git.
    """
    ref = source.ref
    if ref is not None and is_commit(ref):
        return RefMatch(ref)
    wanted = _names_of(ref)
    patterns = [] if is_short(ref) else wanted
    output = await run(["ls-remote", "--", source.url, *patterns], source, cwd=None, access=access)
    rows = [line.split("\t", 1) for line in output.splitlines() if "\t" in line]
    known = {name: commit for commit, name in rows}
    for name in wanted:
        if name in known:
            return RefMatch(known[name], _describe_doubt(ref or "", known))
    if ref is not None and is_short(ref):
        near = {commit for commit in known.values() if commit.startswith(ref)}
        return RefMatch(
            near.pop() if len(near) == 1 else await _search_history(source, ref, access)
        )
    raise Refused(
        f"source.git.ref `{ref or 'HEAD'}` is not in {redact_url(source.url)}",
        hint=f"git ls-remote {redact_url(source.url)}",
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


def _describe_doubt(ref: str, known: Mapping[str, str]) -> str:
    branch = known.get(f"refs/heads/{ref}")
    tag = known.get(f"refs/tags/{ref}")
    commit = known.get(f"refs/tags/{ref}^{{}}", tag)
    if branch is None or tag is None or branch == commit:
        return ""
    return (
        f"source.git.ref `{ref}` is a tag and a branch there, and the tag is taken;"
        f" `refs/heads/{ref}` is the branch, `refs/tags/{ref}` the tag"
    )


async def _search_history(
    source: GitSource,
    short: str,
    access: GitAccess,
) -> str:
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
        f"source.git.ref `{short}` is not in {redact_url(source.url)}: {several}",
        hint="give all 40 digits",
    )


async def fetch_commit(
    source: GitSource,
    commit: str,
    tree: Path,
) -> None:
    """Fills the empty directory `tree` with a repository at that commit, or with the one directory
    that the source names. Raises Refused and Unavailable.
    """
    access = PLAIN.with_options(("remote.origin.url", source.url))
    if source.lfs:
        access = with_lfs(access)

    async def do(*words: str, by: GitAccess = PLAIN) -> None:
        await run([*words], source, cwd=tree, access=by)

    await do("init", "--quiet", "--template=", ".")
    await do(
        "fetch",
        "--quiet",
        "--depth=1",
        "--no-tags",
        "--",
        source.url,
        commit,
    )
    update = ["submodule", "update", "--quiet", "--init", "--recursive", "--depth=1"]
    if source.path is None:
        await do(
            "checkout",
            "--quiet",
            "--detach",
            "FETCH_HEAD",
            by=access,
        )
    else:
        await check_directory(source, commit, tree)
        # Attributes and submodules are looked up at the top.
        await do("update-ref", "--no-deref", "HEAD", "FETCH_HEAD")
        await do("read-tree", "FETCH_HEAD")
        listed = await run(["ls-files", "-z", "--", ".gitmodules"], source, cwd=tree)
        tops = [".gitmodules"] if listed and source.submodules else []
        literal = ["--literal-pathspecs", "checkout", "--quiet", "--"]
        await do(*literal, source.path, *tops, by=access)
        update += ["--", source.path]
    if source.submodules:
        await do(*update, by=of_submodules(access, source.url))


async def check_directory(
    source: GitSource,
    commit: str,
    tree: Path,
) -> str:
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


def of_submodules(access: GitAccess, url: str) -> GitAccess:
    """Returns the access by which the submodules of `url` are fetched: those of a remote repository
    are remote as well. The user decides which repositories of this machine are read.
    """
    local = url.startswith("file:")
    allowed = ":".join(it for it in SCHEMES if it != "file" or local)
    return access.with_options(GIT_ALLOW_PROTOCOL=allowed)


def with_lfs(access: GitAccess) -> GitAccess:
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
    arguments: list[str],
    source: GitSource,
    *,
    cwd: Path | None,
    access: GitAccess = PLAIN,
) -> str:
    """Returns the output of a git command. Raises Refused or Unavailable."""
    pairs = (*_OPTIONS.items(), *access.options)
    options = [part for key, value in pairs for part in ("-c", f"{key}={value}")]
    try:
        answer = await run_program(
            ["git", *options, *arguments],
            deadline_s=FETCH_S,
            cwd=cwd or "/",
            env=_git_environment() | dict(access.environment),
        )
    except FileNotFoundError as error:
        raise Refused("source.git needs the program `git`", hint="install git") from error
    except TimeoutError as error:
        raise Unavailable(
            f"{redact_url(source.url)} did not answer within {FETCH_S:.0f} s",
            retry_after_s=RETRY_AFTER_S,
        ) from error
    if answer.code:
        raise _translate_failure(source, answer.errors.decode("utf-8", "replace"))
    return answer.out.decode("utf-8", "replace")


def _translate_failure(source: GitSource, message: str) -> Refused | Unavailable:
    text = " ".join(message.split()).replace(source.url, redact_url(source.url))[
        -ERROR_CHARACTERS_MAX:
    ]
    if any(sign in message for sign in _UNKNOWN):
        return Refused(
            f"source.git.ref `{source.ref}` is not in {redact_url(source.url)}",
            hint=f"git ls-remote {redact_url(source.url)}",
        )
    missing = _LFS_MISSING.search(message)
    if missing is not None:
        file = missing["file"]
        return Refused(
            f"{redact_url(source.url)} has a pointer of Git LFS for `{file}` and not the file",
            hint="`git lfs push --all REMOTE` where the file is",
        )
    return Unavailable(
        f"{redact_url(source.url)} cannot be fetched: {text}",
        retry_after_s=RETRY_AFTER_S,
        reason="SourceUnreachable",
    )


def redact_url(url: str) -> str:
    """The url without a password."""
    return re.sub(r"//[^/@]*@", "//", url)


def _git_environment() -> dict[str, str]:
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


# The variables for reaching a remote: programs, keys and proxies. No variable that configures git.
_KEPT = (
    *("PATH", "HOME", "LANG", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
_URL_HINT = f"write {', '.join(f'{scheme}://' for scheme in SCHEMES)} or user@host:path"
