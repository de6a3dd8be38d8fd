"""The calls about a repository's state and git's configuration."""

from __future__ import annotations

from urllib.parse import quote

from aiohttp import web

from .calls import Call, Route
from .errors import ToolboxError, bad_request, reply
from .git import GitFailed, explained, git, run

_STATUS = {
    ".": "Unmodified",
    "?": "Untracked",
    "M": "Modified",
    "T": "Modified",
    "A": "Added",
    "D": "Deleted",
    "R": "Renamed",
    "C": "Copied",
    "U": "Updated but unmerged",
}
SCOPES = ("global", "local", "system")


async def get_status(call: Call) -> web.Response:
    words = ["status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all"]
    entries = (await git(call.toolbox, call.query("path"), words)).split("\0")
    head, upstream, ahead, behind = "", "", 0, 0
    files: list[dict[str, str]] = []
    rest = iter(entries)
    for entry in rest:
        if entry.startswith("# branch.head "):
            head = entry.removeprefix("# branch.head ")
        elif entry.startswith("# branch.upstream "):
            upstream = entry.removeprefix("# branch.upstream ")
        elif entry.startswith("# branch.ab "):
            ahead, behind = (abs(int(number)) for number in entry.split()[2:])
        elif entry and not entry.startswith("#"):
            # A rename has the name that it had before as an entry of its own.
            files.append(_file(entry, next(rest) if entry.startswith("2 ") else ""))
    detached = head == "(detached)"
    return reply(
        {
            "currentBranch": "HEAD" if detached else head,
            "fileStatus": files,
            "ahead": ahead,
            "behind": behind,
            "branchPublished": bool(upstream),
            "upstream": upstream,
            "detached": detached,
        }
    )


async def get_config(call: Call) -> web.Response:
    scope = _scope(call.request.query.get("scope") or "global")
    path = call.request.query.get("path")
    try:
        text = await run(call.toolbox, path, ["config", scope, "--get", "--", call.query("key")])
    except GitFailed as failure:
        if failure.code == 1:
            return reply({})  # unset
        raise explained("config", failure) from failure
    return reply({"value": text.removesuffix("\n")})


async def set_config(call: Call) -> web.Response:
    body = await call.body("GitSetConfigRequest", "key")
    key, value = body.text("key"), body.text("value")
    await _set(call, {key: value}, scope=body.text("scope"), path=body.text("path"))
    return web.Response(status=200)


async def configure_user(call: Call) -> web.Response:
    body = await call.body("GitConfigureUserRequest", "name", "email")
    values = {"user.name": body.text("name"), "user.email": body.text("email")}
    await _set(call, values, scope=body.text("scope"), path=body.text("path"))
    return web.Response(status=200)


async def authenticate(call: Call) -> web.Response:
    """Plain text in the home directory: the credential store's way, and the daemon's."""
    body = await call.body("GitAuthenticateRequest", "username", "password")
    protocol, host = body.text("protocol", "https"), body.text("host", "github.com")
    name, password = quote(body.text("username"), safe=""), quote(body.text("password"), safe="")
    file = call.toolbox.host(f"{call.toolbox.home}/.git-credentials")
    kept = file.read_text().splitlines() if file.exists() else []
    lines = [line for line in kept if not line.endswith(f"@{host}")]
    file.write_text("\n".join([*lines, f"{protocol}://{name}:{password}@{host}"]) + "\n")
    file.chmod(0o600)
    await _set(call, {"credential.helper": "store"}, scope="global", path=None)
    return web.Response(status=200)


async def _set(call: Call, values: dict[str, str], *, scope: str | None, path: str | None) -> None:
    word = _scope(scope or "global")
    if word == "--local" and not path:
        raise bad_request("path is required for local scope")
    for key, value in values.items():
        await git(call.toolbox, path or None, ["config", word, "--", key, value])


def _scope(scope: str) -> str:
    if scope not in SCOPES:
        raise bad_request(f"invalid config scope: {scope}")
    return f"--{scope}"


def _file(entry: str, before: str) -> dict[str, str]:
    kind, _, rest = entry.partition(" ")
    if kind == "?":
        return {"name": rest, "extra": "", "staging": _STATUS["?"], "worktree": _STATUS["?"]}
    # Fields before the name, by the kind of entry: changed, renamed or copied, unmerged.
    count = {"1": 7, "2": 8, "u": 9}.get(kind)
    if count is None:
        raise ToolboxError(500, f"git status said `{entry}`")
    letters, *_, name = rest.split(" ", count)
    return {
        "name": name,
        "extra": before,
        "staging": _STATUS[letters[0]],
        "worktree": _STATUS[letters[1]],
    }


ROUTES: list[Route] = [
    ("GET", "/git/status", get_status),
    ("GET", "/git/config", get_config),
    ("POST", "/git/config", set_config),
    ("POST", "/git/config/user", configure_user),
    ("POST", "/git/credentials", authenticate),
]
