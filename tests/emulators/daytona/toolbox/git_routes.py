"""The calls about a repository's content: clone, look, add, commit, branches, remotes."""

from __future__ import annotations

from aiohttp import web

from .bodies import Body
from .calls import Call, Route
from .errors import ToolboxError, bad_request, reply
from .git import Credentials, GitFailed, explained, git, place_in_box, remote_settings, run

RESET_MODES = ("soft", "mixed", "hard", "merge", "keep")
_LOG_FORMAT = "%H%x1f%an%x1f%ae%x1f%aI%x1f%B%x1e"


async def clone(call: Call) -> web.Response:
    body = await call.body("GitCloneRequest", "url", "path")
    url, toolbox = body.text("url"), call.toolbox
    target = toolbox.host(body.text("path"))
    target.parent.mkdir(parents=True, exist_ok=True)
    words = ["clone"]
    if body.text("branch"):
        words += ["--branch", body.text("branch")]
    if body.number("depth") and not body.text("commit_id"):
        # Of a commit nobody knows how deep it lies.
        words += ["--depth", str(body.number("depth"))]
    settings = {"http.sslVerify": "false"} if body.flag("insecure_skip_tls") else {}
    inside = place_in_box(toolbox, url)
    words += ["--", str(inside or url), str(target)]
    await git(toolbox, None, words, credentials=_credentials(body), settings=settings)
    if inside:
        await git(toolbox, body.text("path"), ["remote", "set-url", "origin", url])
    if body.text("commit_id"):
        await git(toolbox, body.text("path"), ["checkout", "--detach", body.text("commit_id")])
    return web.Response(status=200)


async def init(call: Call) -> web.Response:
    body = await call.body("GitInitRequest", "path")
    host = call.toolbox.host(body.text("path"))
    host.mkdir(parents=True, exist_ok=True)
    bare = ["--bare"] if body.flag("bare") else []
    branch = body.text("initial_branch", "main")
    await git(call.toolbox, body.text("path"), ["init", *bare, f"--initial-branch={branch}"])
    return web.Response(status=201)


async def add(call: Call) -> web.Response:
    body = await call.body("GitAddRequest", "path", "files")
    await git(call.toolbox, body.text("path"), ["add", "--", *body.texts("files")])
    return web.Response(status=200)


async def commit(call: Call) -> web.Response:
    body = await call.body("GitCommitRequest", "path", "message", "author", "email")
    path = body.text("path")
    who: dict[str, str] = {}
    for role in ("author", "committer"):
        who |= {f"{role}.name": body.text("author"), f"{role}.email": body.text("email")}
    words = ["commit", "--message", body.text("message")]
    if body.flag("allow_empty"):
        words.append("--allow-empty")
    try:
        await run(call.toolbox, path, words, settings=who)
    except GitFailed as failure:
        if "nothing to commit" in str(failure) or "nothing added" in str(failure):
            raise bad_request("cannot create empty commit: clean working tree") from failure
        raise explained("commit", failure) from failure
    return reply({"hash": (await git(call.toolbox, path, ["rev-parse", "HEAD"])).strip()})


async def history(call: Call) -> web.Response:
    text = await git(call.toolbox, call.query("path"), ["log", f"--format={_LOG_FORMAT}"])
    found = []
    for entry in text.split("\x1e")[:-1]:
        commit_hash, author, email, at, message = entry.lstrip("\n").split("\x1f")
        fields = {"hash": commit_hash, "author": author, "email": email}
        found.append({**fields, "message": message.rstrip("\n") + "\n", "timestamp": at})
    return reply(found)


async def branches(call: Call) -> web.Response:
    path = call.query("path")
    text = await git(call.toolbox, path, ["branch", "--format=%(refname)"])
    names = [
        line.removeprefix("refs/heads/") for line in text.splitlines() if line.startswith("refs/")
    ]
    current = (await git(call.toolbox, path, ["branch", "--show-current"])).strip()
    return reply({"branches": names, **({"current": current} if current else {})})


async def create_branch(call: Call) -> web.Response:
    """The new branch is checked out too."""
    body = await call.body("GitBranchRequest", "path", "name")
    await git(call.toolbox, body.text("path"), ["checkout", "-b", body.text("name")])
    return web.Response(status=201)


async def delete_branch(call: Call) -> web.Response:
    body = await call.body("GitDeleteBranchRequest", "path", "name")
    name = body.text("name")
    try:
        await run(call.toolbox, body.text("path"), ["branch", "-D", "--", name])
    except GitFailed as failure:
        if "not found" in str(failure):
            code = "GIT_BRANCH_NOT_FOUND"
            raise ToolboxError(404, f"branch '{name}' not found", code=code) from failure
        if "checked out" in str(failure) or "used by worktree" in str(failure):
            raise bad_request("cannot delete the branch that is checked out") from failure
        raise explained("branch", failure) from failure
    return web.Response(status=204)


async def checkout(call: Call) -> web.Response:
    """A branch, or a commit: then HEAD is detached."""
    body = await call.body("GitCheckoutRequest", "path", "branch")
    await git(call.toolbox, body.text("path"), ["checkout", body.text("branch"), "--"])
    return web.Response(status=200)


async def push(call: Call) -> web.Response:
    body = await call.body("GitPushRequest", "path")
    words = ["push", *(["--set-upstream"] if body.flag("set_upstream") else [])]
    path, settings = body.text("path"), await _remotes_in_box(call, body.text("path"))
    branch = body.text("branch")
    if not branch:
        branch = (await git(call.toolbox, path, ["branch", "--show-current"])).strip() or "HEAD"
    words += [body.text("remote", "origin"), str(branch)]
    await git(call.toolbox, path, words, credentials=_credentials(body), settings=settings)
    return web.Response(status=200)


async def pull(call: Call) -> web.Response:
    body = await call.body("GitPullRequest", "path")
    path, settings = body.text("path"), await _remotes_in_box(call, body.text("path"))
    words = ["pull", "--no-rebase"]
    if body.text("remote") or body.text("branch"):
        words.append(body.text("remote", "origin"))
    if body.text("branch"):
        words.append(body.text("branch"))
    settings |= {"user.name": "daytona", "user.email": "daytona@localhost"}  # of a merge commit
    await git(call.toolbox, path, words, credentials=_credentials(body), settings=settings)
    return web.Response(status=200)


async def reset(call: Call) -> web.Response:
    body = await call.body("GitResetRequest", "path")
    mode, files = body.text("mode", "mixed"), body.texts("files")
    if mode not in RESET_MODES:
        raise bad_request(f"invalid reset mode: {mode}")
    words = ["reset", *([] if files else [f"--{mode}"]), body.text("target", "HEAD")]
    await git(call.toolbox, body.text("path"), [*words, "--", *files])
    return web.Response(status=200)


async def restore(call: Call) -> web.Response:
    body = await call.body("GitRestoreRequest", "path", "files")
    words = ["restore"]
    words += [f"--{place}" for place in ("staged", "worktree") if body.flag(place)]
    if body.text("source"):
        words.append(f"--source={body.text('source')}")
    await git(call.toolbox, body.text("path"), [*words, "--", *body.texts("files")])
    return web.Response(status=200)


async def list_remotes(call: Call) -> web.Response:
    return reply({"remotes": [{"name": n, "url": u} for n, u in (await _remotes(call)).items()]})


async def add_remote(call: Call) -> web.Response:
    body = await call.body("GitAddRemoteRequest", "path", "name", "url")
    path, name, url = body.text("path"), body.text("name"), body.text("url")
    try:
        await run(call.toolbox, path, ["remote", "add", "--", name, url])
    except GitFailed as failure:
        if "already exists" not in str(failure):
            raise explained("remote", failure) from failure
        if not body.flag("overwrite"):
            raise ToolboxError(409, f"remote '{name}' already exists") from failure
        await git(call.toolbox, path, ["remote", "set-url", "--", name, url])
    if body.flag("fetch"):
        settings = remote_settings(call.toolbox, url)
        await git(call.toolbox, path, ["fetch", name], settings=settings)
    return web.Response(status=201)


def _credentials(body: Body) -> Credentials | None:
    if not body.text("password"):
        return None
    return Credentials(body.text("username", "oauth2"), body.text("password"))


async def _remotes(call: Call, path: str = "") -> dict[str, str]:
    toolbox, path = call.toolbox, path or call.query("path")
    await git(toolbox, path, ["rev-parse", "--git-dir"])
    try:
        text = await run(toolbox, path, ["config", "--get-regexp", r"^remote\..*\.url$"])
    except GitFailed:
        return {}  # there is none
    pairs = (line.split(" ", 1) for line in text.splitlines())
    return {key[len("remote.") : -len(".url")]: url for key, url in pairs}


async def _remotes_in_box(call: Call, path: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for url in (await _remotes(call, path)).values():
        settings |= remote_settings(call.toolbox, url)
    return settings


ROUTES: list[Route] = [
    ("POST", "/git/clone", clone),
    ("POST", "/git/init", init),
    ("POST", "/git/add", add),
    ("POST", "/git/commit", commit),
    ("GET", "/git/history", history),
    ("GET", "/git/branches", branches),
    ("POST", "/git/branches", create_branch),
    ("DELETE", "/git/branches", delete_branch),
    ("POST", "/git/checkout", checkout),
    ("POST", "/git/push", push),
    ("POST", "/git/pull", pull),
    ("POST", "/git/reset", reset),
    ("POST", "/git/restore", restore),
    ("GET", "/git/remotes", list_remotes),
    ("POST", "/git/remotes", add_remote),
]
