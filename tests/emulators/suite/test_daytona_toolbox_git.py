"""Git through the SDK: real repositories in the sandbox, and remotes on this machine."""

from __future__ import annotations

import base64
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from daytona import Sandbox
from daytona.common.errors import (
    DaytonaBadRequestError,
    DaytonaConflictError,
    DaytonaError,
    DaytonaGitAuthFailedError,
    DaytonaGitBranchExistsError,
    DaytonaGitBranchNotFoundError,
    DaytonaGitDirtyWorktreeError,
    DaytonaGitMergeConflictError,
    DaytonaGitPushRejectedError,
    DaytonaGitRemoteRejectedError,
    DaytonaGitRepoNotFoundError,
    DaytonaGitTransportFailedError,
)

from tests.emulators.suite.daytona_toolbox_world import Place, place

WHO = {"author": "Ada", "email": "ada@example.org"}


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("daytona")) as here:
        yield here


@pytest.fixture(scope="module")
def sandbox(emulator: Place) -> Sandbox:
    return emulator.client().create(timeout=60)


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A repository of this machine with two commits on master and one on `other`."""
    made = tmp_path / "remote.git"
    work = tmp_path / "work"
    shell(
        f"git init -q -b master {work} && cd {work} && git config user.name n && "
        "git config user.email n@example.org && echo 1 > file && git add . && "
        "git commit -qm first && git branch other && git tag v1 && echo 2 > file && "
        f"git commit -qam second && git clone -q --bare {work} {made}"
    )
    return made


@pytest.fixture
def clone(sandbox: Sandbox, remote: Path) -> str:
    sandbox.process.exec("rm -rf workspace")
    sandbox.git.clone(str(remote), "workspace/repo")
    return "workspace/repo"


def shell(command: str) -> str:
    done = subprocess.run(command, shell=True, check=True, capture_output=True, text=True)
    return done.stdout


def commit(sandbox: Sandbox, repository: str, name: str, text: str) -> str:
    sandbox.fs.upload_file(text.encode(), f"{repository}/{name}")
    sandbox.git.add(repository, [name])
    return sandbox.git.commit(repository, f"change {name}", **WHO).sha


def test_a_clone_has_the_files_and_the_branch_of_its_remote(
    emulator: Place, sandbox: Sandbox, clone: str
) -> None:
    assert emulator.host(sandbox, f"{clone}/file").read_text() == "2\n"
    status = sandbox.git.status(clone)
    assert (status.current_branch, status.upstream) == ("master", "origin/master")
    assert (status.ahead, status.behind, status.branch_published) == (0, 0, True)
    assert (status.file_status, status.detached) == ([], False)


def test_a_clone_can_be_of_a_branch_a_tag_a_commit_or_shallow(
    sandbox: Sandbox, remote: Path
) -> None:
    git = sandbox.git
    sandbox.process.exec("rm -rf clones")
    git.clone(f"file://{remote}", "clones/branch", branch="other")
    assert git.status("clones/branch").current_branch == "other"
    git.clone(str(remote), "clones/tag", branch="v1")
    assert sandbox.process.exec("cat clones/tag/file").result == "1\n"
    first = shell(f"git -C {remote} rev-parse other").strip()
    git.clone(str(remote), "clones/commit", commit_id=first)
    assert git.status("clones/commit").detached
    assert sandbox.process.exec("git -C clones/commit rev-parse HEAD").result.strip() == first
    git.clone(f"file://{remote}", "clones/shallow", depth=1)
    assert sandbox.process.exec("git -C clones/shallow rev-list --count HEAD").result == "1\n"


def test_clones_that_cannot_be_say_why(sandbox: Sandbox, remote: Path, clone: str) -> None:
    git = sandbox.git
    with pytest.raises(DaytonaGitRepoNotFoundError):
        git.clone(f"{remote}-of-another-name", "clones/a")
    with pytest.raises(DaytonaGitBranchNotFoundError):
        git.clone(str(remote), "clones/b", branch="no-such-branch")
    with pytest.raises(DaytonaGitBranchNotFoundError):
        git.clone(str(remote), "clones/c", commit_id="0" * 40)
    with pytest.raises(DaytonaGitTransportFailedError):
        git.clone("http://127.0.0.1:9/repo.git", "clones/d")
    with pytest.raises(DaytonaBadRequestError, match="not an empty directory") as caught:
        git.clone(str(remote), clone)
    assert "'/home/daytona/workspace/repo'" in str(caught.value), "a path that no sandbox knows"


def test_changes_show_in_the_status_until_they_are_committed(
    emulator: Place, sandbox: Sandbox, clone: str
) -> None:
    host = emulator.host(sandbox, clone)
    (host / "file").write_text("changed")
    (host / "new file").write_text("new")

    def state() -> list[tuple[str, str, str]]:
        files = sandbox.git.status(clone).file_status
        return [(one.name, one.staging.value, one.worktree.value) for one in files]

    assert state() == [
        ("file", "Unmodified", "Modified"),
        ("new file", "Untracked", "Untracked"),
    ]
    sandbox.git.add(clone, ["file", "new file"])
    assert state() == [("file", "Modified", "Unmodified"), ("new file", "Added", "Unmodified")]
    made = sandbox.git.commit(clone, "both\n\nwith a body", **WHO)
    assert state() == []
    assert shell(f"git -C {host} log -1 --format='%H|%an|%ce|%B'").split("|")[:3] == [
        made.sha,
        "Ada",
        "ada@example.org",
    ]
    (host / "new file").rename(host / "renamed")
    sandbox.git.add(clone, ["."])
    (file,) = sandbox.git.status(clone).file_status
    assert (file.name, file.staging.value, file.extra) == ("renamed", "Renamed", "new file")
    assert sandbox.git.status(clone).ahead == 1


def test_an_empty_commit_is_made_only_on_demand(sandbox: Sandbox, clone: str) -> None:
    with pytest.raises(DaytonaBadRequestError, match="empty commit"):
        sandbox.git.commit(clone, "nothing", **WHO)
    assert len(sandbox.git.commit(clone, "nothing", allow_empty=True, **WHO).sha) == 40
    with pytest.raises(DaytonaBadRequestError, match="did not match"):
        sandbox.git.add(clone, ["no-such-file"])


def test_branches_are_made_checked_out_and_deleted(sandbox: Sandbox, clone: str) -> None:
    git = sandbox.git
    git.create_branch(clone, "topic/one")
    assert git.status(clone).current_branch == "topic/one"
    with pytest.raises(DaytonaGitBranchExistsError):
        git.create_branch(clone, "master")
    with pytest.raises(DaytonaBadRequestError, match="checked out"):
        git.delete_branch(clone, "topic/one")
    git.checkout_branch(clone, "master")
    branches = git.branches(clone)
    assert (branches.branches, branches.current) == (["master", "topic/one"], "master")
    git.delete_branch(clone, "topic/one")
    assert git.branches(clone).branches == ["master"]
    for missing in (git.delete_branch, git.checkout_branch):
        with pytest.raises(DaytonaGitBranchNotFoundError):
            missing(clone, "topic/one")


def test_work_is_pushed_and_pulled(
    emulator: Place, sandbox: Sandbox, clone: str, remote: Path
) -> None:
    made = commit(sandbox, clone, "pushed", "x")
    sandbox.git.push(clone)
    assert shell(f"git -C {remote} rev-parse master").strip() == made
    sandbox.git.create_branch(clone, "fresh")
    fresh = commit(sandbox, clone, "more", "y")
    sandbox.git.push(clone, set_upstream=True)
    assert shell(f"git -C {remote} rev-parse fresh").strip() == fresh
    assert sandbox.git.status(clone).upstream == "origin/fresh"
    sandbox.git.clone(str(remote), "workspace/second")
    elsewhere = commit(sandbox, "workspace/second", "elsewhere", "z")
    sandbox.git.push("workspace/second")
    sandbox.git.checkout_branch(clone, "master")
    sandbox.git.pull(clone)
    assert emulator.host(sandbox, f"{clone}/elsewhere").read_text() == "z"
    assert sandbox.process.exec(f"git -C {clone} rev-parse HEAD").result.strip() == elsewhere


def test_two_who_change_the_same_get_told(sandbox: Sandbox, clone: str, remote: Path) -> None:
    git = sandbox.git
    git.clone(str(remote), "workspace/second")
    commit(sandbox, "workspace/second", "file", "theirs")
    git.push("workspace/second")
    sandbox.fs.upload_file(b"not committed", f"{clone}/file")
    with pytest.raises(DaytonaGitDirtyWorktreeError):
        git.pull(clone)
    commit(sandbox, clone, "file", "ours")
    with pytest.raises(DaytonaGitPushRejectedError):
        git.push(clone)
    with pytest.raises(DaytonaGitMergeConflictError):
        git.pull(clone)


def test_a_remote_that_declines_is_not_one_that_is_behind(
    sandbox: Sandbox, clone: str, remote: Path
) -> None:
    (remote / "hooks" / "pre-receive").write_text("#!/bin/sh\necho no >&2\nexit 1\n")
    (remote / "hooks" / "pre-receive").chmod(0o755)
    commit(sandbox, clone, "declined", "x")
    with pytest.raises(DaytonaGitRemoteRejectedError):
        sandbox.git.push(clone)


@contextmanager
def guarded(directory: Path, user: str, password: str) -> Iterator[str]:
    """The directory over HTTP, for whoever knows the password."""
    expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(directory))  # type: ignore[arg-type]

        def do_GET(self) -> None:
            if self.headers.get("Authorization") == expected:
                super().do_GET()
                return
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_credentials_open_a_remote_and_stay_nowhere(
    emulator: Place, sandbox: Sandbox, remote: Path
) -> None:
    shell(f"git -C {remote} update-server-info")
    sandbox.process.exec("rm -rf workspace")
    with guarded(remote.parent, "me", "s3cret-word") as url:
        with pytest.raises(DaytonaGitAuthFailedError):
            sandbox.git.clone(f"{url}/remote.git", "workspace/without")
        with pytest.raises(DaytonaGitAuthFailedError) as caught:
            sandbox.git.clone(
                f"{url}/remote.git", "workspace/wrong", username="me", password="wr0ng-word"
            )
        assert "wr0ng-word" not in str(caught.value)
        sandbox.git.clone(
            f"{url}/remote.git", "workspace/right", username="me", password="s3cret-word"
        )
    assert emulator.host(sandbox, "workspace/right/file").read_text() == "2\n"
    assert sandbox.process.exec("grep -r s3cret-word /home/daytona").exit_code == 1


def test_repositories_of_the_sandbox_are_remotes_too(
    emulator: Place, sandbox: Sandbox, clone: str
) -> None:
    git = sandbox.git
    git.init("/home/daytona/workspace/own.git", bare=True, initial_branch="master")
    git.remote_add(clone, "own", "/home/daytona/workspace/own.git")
    git.push(clone, remote="own", branch="master")
    git.clone("file:///home/daytona/workspace/own.git", "workspace/from-own", branch="master")
    assert emulator.host(sandbox, "workspace/from-own/file").read_text() == "2\n"
    url = git.remote_get("workspace/from-own", "origin")
    assert url == "file:///home/daytona/workspace/own.git"
    assert sandbox.process.exec("git -C workspace/from-own fetch").exit_code == 0
    commit(sandbox, "workspace/from-own", "back", "x")
    git.push("workspace/from-own")
    git.pull(clone, remote="own", branch="master")
    assert emulator.host(sandbox, f"{clone}/back").exists()


def test_a_mirror_stands_in_for_a_host_that_cannot_be_reached(
    sandbox: Sandbox, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{remote.parent}/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://git.invalid/owner/")
    sandbox.git.clone("https://git.invalid/owner/remote.git", f"mirrored-{remote.parent.name}")
    url = sandbox.git.remote_get(f"mirrored-{remote.parent.name}", "origin")
    assert url == "https://git.invalid/owner/remote.git"


def test_remotes_are_added_once_unless_overwritten(sandbox: Sandbox, clone: str) -> None:
    git = sandbox.git
    git.remote_add(clone, "more", "/nowhere/a")
    with pytest.raises(DaytonaConflictError):
        git.remote_add(clone, "more", "/nowhere/b")
    git.remote_add(clone, "more", "/nowhere/b", overwrite=True)
    assert git.remote_get(clone, "more") == "/nowhere/b"
    assert git.remote_get(clone, "none") is None
    assert [one.name for one in git.remotes(clone).remotes] == ["origin", "more"]


def test_configuration_has_scopes(emulator: Place, sandbox: Sandbox, clone: str) -> None:
    git = sandbox.git
    git.configure_user("Grace", "grace@example.org")
    assert (git.get_config("user.name"), git.get_config("user.absent")) == ("Grace", None)
    git.set_config("user.name", "Local", scope="local", path=clone)
    assert git.get_config("user.name", scope="local", path=clone) == "Local"
    assert git.get_config("user.name") == "Grace"
    assert sandbox.process.exec("git config --global user.email").result == "grace@example.org\n"
    with pytest.raises(DaytonaBadRequestError, match="path is required"):
        git.set_config("a.b", "c", scope="local")
    git.dangerously_authenticate("me", "p@ss", host="git.example.org")
    stored = emulator.host(sandbox, ".git-credentials").read_text()
    assert stored == "https://me:p%40ss@git.example.org\n"


def test_reset_and_restore_undo(emulator: Place, sandbox: Sandbox, clone: str) -> None:
    git, host = sandbox.git, emulator.host(sandbox, clone)
    (host / "file").write_text("scribble")
    git.add(clone, ["file"])
    git.restore(clone, ["file"], staged=True)
    (file,) = git.status(clone).file_status
    assert (file.staging.value, file.worktree.value) == ("Unmodified", "Modified")
    git.restore(clone, ["file"])
    assert (host / "file").read_text() == "2\n"
    git.restore(clone, ["file"], source="HEAD~1", worktree=True)
    assert (host / "file").read_text() == "1\n"
    git.add(clone, ["file"])
    git.reset(clone, files=["file"])
    assert git.status(clone).file_status[0].staging.value == "Unmodified"
    git.reset(clone, mode="hard", target="HEAD~1")
    assert (host / "file").read_text() == "1\n"
    assert git.status(clone).behind == 1
    with pytest.raises(DaytonaBadRequestError, match="invalid reset mode"):
        git.reset(clone, mode="gentle")


def test_what_is_no_repository_is_not_found(sandbox: Sandbox) -> None:
    sandbox.fs.create_folder("plain", "755")
    for ask in (sandbox.git.status, sandbox.git.branches, sandbox.git.remotes, sandbox.git.pull):
        for path in ("plain", "no-such-folder"):
            with pytest.raises(DaytonaError) as caught:
                ask(path)
            assert (caught.value.status_code, caught.value.code) == (404, "GIT_REPO_NOT_FOUND")
