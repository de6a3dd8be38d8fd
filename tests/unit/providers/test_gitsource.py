"""Git sources: what is refused before git sees it, and what a hostile repository cannot do."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.providers.local.assets import local_source as gitsource
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.providers.sources import git
from fleetctl.providers.sources.git import PLAIN
from fleetctl.specs.blocks.template import GitSource

HOSTILE = [
    "--upload-pack=touch /tmp/pwned",
    "-oProxyCommand=touch /tmp/pwned",
    "ext::sh -c touch% /tmp/pwned",
    "ext::sh",
    "fd::17",
    "ssh://-oProxyCommand=touch/path",
    "ssh://user@-oProxyCommand=touch/path",
    "-host:path",
    "user@-host:path",
    "host:-path",
    "https://example.org/a\n--upload-pack=x",
    "https://example.org/a b",
    "https://example.org/\x1b[31m",
    "ftp://example.org/a",
    "transport::address",
    "/etc",
    "../other",
    "",
]


class Repository:
    """A repository on disk, with one commit for each `commit`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    @property
    def url(self) -> str:
        return f"file://{self.path}"

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        # Nothing of this machine's own configuration, which may know git-lfs.
        own = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        argv = ["git", "-C", str(self.path), *who, *words]
        done = subprocess.run(
            argv, check=True, capture_output=True, text=True, env=os.environ | own
        )
        return done.stdout.strip()

    def commit(self, name: str, text: str) -> str:
        (self.path / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", name)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "origin")
    repository.commit("main.py", "one")
    return repository


def checkout(tmp_path: Path, url: str, ref: str | None = None, *, submodules: bool = False) -> Path:
    source = GitSource.model_construct(url=url, ref=ref, submodules=submodules)
    return asyncio.run(gitsource.check_out_commit(LocalLayout(tmp_path / "home"), source))[0]


@pytest.mark.parametrize("url", HOSTILE)
def test_a_url_that_git_could_misread_is_refused_before_git(url: str, tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        checkout(tmp_path, url)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("url", ["git@example.org:a/b.git", "https://example.org/a.git", "host:a"])
def test_usual_urls_are_accepted(url: str) -> None:
    git.check_source(GitSource.model_construct(url=url, ref=None, submodules=False))


@pytest.mark.parametrize(
    "ref", ["-x", "--upload-pack=x", "a..b", "a b", "a:b", "x\n", "@{1}", "^a"]
)
def test_a_ref_that_git_could_misread_is_refused(ref: str, repository: Repository) -> None:
    with pytest.raises(Refused, match="ref"):
        checkout(repository.path.parent, repository.url, ref)


def test_branch_tag_commit_and_default_are_found(repository: Repository, tmp_path: Path) -> None:
    first = repository.git("rev-parse", "HEAD")
    repository.git("tag", "-a", "v1", "-m", "v1")
    repository.git("branch", "feature/x")
    repository.commit("main.py", "two")
    texts = {
        ref: (checkout(tmp_path, repository.url, ref) / "main.py").read_text()
        for ref in (None, "main", "v1", "feature/x", first)
    }
    assert texts == {None: "two", "main": "two", "v1": "one", "feature/x": "one", first: "one"}


def test_a_commit_is_fetched_once(repository: Repository, tmp_path: Path) -> None:
    first = checkout(tmp_path, repository.url, "main")
    assert checkout(tmp_path, repository.url, "main") == first
    assert not (first / ".git").exists()


def test_an_unknown_ref_is_the_users_to_change(repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="`nope` is not in"):
        checkout(tmp_path, repository.url, "nope")
    with pytest.raises(Refused, match="is not in"):
        checkout(tmp_path, repository.url, "0" * 40)
    with pytest.raises(Refused, match="no commit begins with it"):
        checkout(tmp_path, repository.url, "abcdef1")


def test_a_remote_that_cannot_be_reached_may_be_back_later(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        checkout(tmp_path, f"file://{tmp_path}/no-such-repository")
    assert caught.value.retry_after_s > 0


def test_a_password_in_a_url_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(FleetctlError) as caught:
        checkout(tmp_path, "http://user:hunter2@127.0.0.1:1/a.git")
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in caught.value.hint


def test_hooks_filters_and_templates_do_not_run(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "pwned"
    run = f"touch {canary}"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        for place in (hooks / name, repository.path / ".git" / "hooks" / name):
            place.parent.mkdir(exist_ok=True)
            place.write_text(f"#!/bin/sh\n{run}\n")
            place.chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(
        f"[core]\nhooksPath={hooks}\nfsmonitor={run}\n[init]\ntemplateDir={tmp_path}\n"
        f'[filter "lfs"]\nsmudge={run}\nprocess={run}\n[protocol "ext"]\nallow=always\n'
    )
    repository.commit(".gitattributes", "* filter=lfs\n")
    canary.unlink(missing_ok=True)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(tmp_path))
    tree = checkout(tmp_path, repository.url, "main")
    assert (tree / "main.py").read_text() == "one"
    assert not canary.exists()


def test_hooks_that_stand_in_a_checkout_do_not_run(repository: Repository, tmp_path: Path) -> None:
    tree, canary = tmp_path / "tree", tmp_path / "pwned"
    subprocess.run(["git", "init", "--quiet", str(tree)], check=True)
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        hook = tree / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {canary}\n")
        hook.chmod(0o755)
    source = GitSource.model_construct(url=repository.url, ref=None, submodules=False)
    asyncio.run(git.fetch_commit(source, repository.git("rev-parse", "HEAD"), tree))
    assert (tree / "main.py").read_text() == "one"
    assert not canary.exists()


def test_submodules_are_fetched_only_when_asked_for_and_never_through_strange_transports(
    repository: Repository, tmp_path: Path
) -> None:
    canary = tmp_path / "pwned"
    inner = repository.git("rev-parse", "HEAD")
    (repository.path / ".gitmodules").write_text(
        f'[submodule "evil"]\n\tpath = evil\n\turl = "ext::sh -c touch% {canary}"\n'
    )
    repository.git("add", "-A")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{inner},evil")
    repository.git("commit", "-qm", "evil")
    assert (checkout(tmp_path, repository.url) / "main.py").read_text() == "one"
    with pytest.raises(FleetctlError):
        checkout(tmp_path, repository.url, submodules=True)
    assert not canary.exists()


def test_a_remote_repository_names_no_submodule_of_this_machine() -> None:
    remote = git.of_submodules(PLAIN, "https://example.org/a.git")
    local = git.of_submodules(PLAIN, "file:///srv/a.git")
    assert dict(remote.environment)["GIT_ALLOW_PROTOCOL"] == "https:http:ssh:git"
    assert "file" in dict(local.environment)["GIT_ALLOW_PROTOCOL"].split(":")
