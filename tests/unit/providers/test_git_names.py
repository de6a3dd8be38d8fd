"""Names of commits and directories of a repository, and what a clone of it lacks: by real git, on
this machine and by the command that clones in a sandbox.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused
from fleetctl.providers.local.assets import local_source as gitsource
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.providers.sources import git
from fleetctl.providers.sources.commit_facts import CommitFactsCache, facts_of
from fleetctl.providers.sources.pinning import commit_variables
from fleetctl.specs.blocks.template import GitSource, Template
from tests.unit.providers.test_clone import run
from tests.unit.providers.test_gitsource import Repository

POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)
ATTRIBUTES = "*.bin filter=lfs diff=lfs merge=lfs -text\n"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "origin")
    made.commit("main.py", "one")
    return made


def found(repository: Repository, ref: str | None) -> git.RefMatch:
    return asyncio.run(git.find_ref(GitSource(url=repository.url, ref=ref)))


def head(repository: Repository) -> str:
    return repository.git("rev-parse", "HEAD")


def test_full_names_are_taken_also_those_of_pull_requests(repository: Repository) -> None:
    first = head(repository)
    repository.git("update-ref", "refs/pull/7/head", first)
    repository.git("tag", "-a", "v1", "-m", "v1")
    repository.commit("main.py", "two")
    refs = ("refs/pull/7/head", "refs/tags/v1", "v1", "refs/heads/main")
    assert [found(repository, ref).commit for ref in refs] == [first] * 3 + [head(repository)]


def test_a_tag_and_a_branch_of_one_name_are_told_apart(repository: Repository) -> None:
    first = head(repository)
    repository.git("tag", "-a", "v1", "-m", "v1")
    repository.commit("main.py", "two")
    repository.git("branch", "v1")
    meant = found(repository, "v1")
    assert meant.commit == first
    assert "a tag and a branch" in meant.doubt and "`refs/heads/v1`" in meant.doubt
    assert found(repository, "refs/heads/v1") == git.RefMatch(head(repository))
    assert found(repository, "refs/tags/v1") == git.RefMatch(first)


def test_a_tag_and_a_branch_at_one_commit_are_no_doubt(repository: Repository) -> None:
    repository.git("tag", "v1")
    repository.git("branch", "v1")
    assert found(repository, "v1") == git.RefMatch(head(repository))


def test_a_short_commit_becomes_a_whole_one_wherever_it_is_in_the_history(
    repository: Repository,
) -> None:
    first = head(repository)
    repository.commit("main.py", "two")
    for commit in (first, head(repository)):
        assert found(repository, commit[:8]).commit == commit
    with pytest.raises(Refused, match="no commit begins with it"):
        found(repository, "0" * 9)


def test_the_directory_that_a_path_names_is_known_by_what_it_holds(repository: Repository) -> None:
    (repository.path / "jobs").mkdir()
    first = repository.commit("jobs/run.sh", "echo 1")
    second = repository.commit("README.md", "more")
    third = repository.commit("jobs/run.sh", "echo 2")

    def held(commit: str, path: str | None) -> str:
        source = GitSource(url=repository.url, path=path)
        return asyncio.run(facts_of(source, commit)).revision

    assert held(first, "jobs") == held(second, "./jobs/") != held(third, "jobs")
    assert len({held(first, None), held(second, "."), held(third, None)}) == 3
    for path in ("nope", "jobs/run.sh"):
        with pytest.raises(Refused, match=r"source\.git\.path"):
            held(third, path)


@pytest.mark.parametrize("place", ["here", "sandbox"])
def test_a_path_is_all_that_tasks_get(repository: Repository, tmp_path: Path, place: str) -> None:
    (repository.path / "a" / "deep").mkdir(parents=True)
    repository.commit("a/deep/x.py", "x")
    commit = repository.commit("a/.hidden", "h")
    source = GitSource(url=repository.url, ref=commit, path="a")
    if place == "here":
        tree, _ = asyncio.run(gitsource.check_out_commit(LocalLayout(tmp_path / "home"), source))
    else:
        tree = tmp_path / "clone"
        assert run(source, tree).returncode == 0
    names = sorted(str(it.relative_to(tree)) for it in tree.rglob("*") if it.is_file())
    assert names == [".hidden", "deep/x.py"]
    assert sorted(it.name for it in tmp_path.iterdir() if it.name.startswith("clone")) in (
        [], ["clone"],
    )  # fmt: skip


def with_pointer(repository: Repository) -> str:
    repository.commit(".gitattributes", ATTRIBUTES)
    (repository.path / "jobs").mkdir()
    (repository.path / "model.bin").write_text(POINTER)
    return repository.commit("jobs/model.bin", POINTER)


def test_files_of_lfs_and_submodules_are_counted(repository: Repository, tmp_path: Path) -> None:
    with_pointer(repository)
    other = Repository(tmp_path / "other")
    other.commit("x", "x")
    allow = ("-c", "protocol.file.allow=always")
    repository.git(*allow, "submodule", "add", "-q", other.url, "vendor/x")
    commit = repository.commit("more", "more")
    known = CommitFactsCache(tmp_path / "commits")
    source = GitSource(url=repository.url)
    facts = asyncio.run(known.of(source, commit))
    assert (facts.lfs, facts.lfs_count) == (("jobs/model.bin", "model.bin"), 2)
    assert facts.submodules == ("vendor/x",)
    within = asyncio.run(known.of(source.model_copy(update={"path": "jobs"}), commit))
    assert (within.lfs, within.submodules) == (("jobs/model.bin",), ())
    # A commit never changes, so nobody asks twice.
    shutil.rmtree(repository.path)
    assert asyncio.run(known.of(source, commit)) == facts


def test_links_that_lead_out_of_a_source_are_found(repository: Repository, tmp_path: Path) -> None:
    (repository.path / "jobs").mkdir()
    for name, target in (
        ("jobs/out", "/etc/passwd"), ("jobs/up", "../main.py"), ("jobs/in", "x"), ("far", "../x")
    ):  # fmt: skip
        (repository.path / name).symlink_to(target)
    commit = repository.commit("jobs/x", "x")
    for path, outside in ((None, ("far", "jobs/out")), ("jobs", ("jobs/out", "jobs/up"))):
        source = GitSource(url=repository.url, path=path)
        facts = asyncio.run(CommitFactsCache(tmp_path / "commits").of(source, commit))
        assert facts.outside == outside


@pytest.mark.needs("git-lfs")
@pytest.mark.parametrize("place", ["here", "sandbox"])
def test_files_of_lfs_come_where_they_are_asked_for(tmp_path: Path, place: str) -> None:
    repository = Repository(tmp_path / "origin")
    repository.git("lfs", "install", "--local", "--skip-repo")
    repository.commit(".gitattributes", ATTRIBUTES)
    (repository.path / "jobs").mkdir()
    commit = repository.commit("jobs/model.bin", "weights " * 100)
    for path in ("jobs", None):
        source = GitSource(url=repository.url, ref=commit, path=path, lfs=True)
        if place == "here":
            tree, _ = asyncio.run(
                gitsource.check_out_commit(LocalLayout(tmp_path / "home"), source)
            )
        else:
            tree = tmp_path / f"clone-{path}"
            done = run(source, tree)
            assert done.returncode == 0, done.stderr
        assert (tree / ("" if path else "jobs") / "model.bin").read_text() == "weights " * 100


@pytest.mark.needs("git-lfs")
def test_a_file_that_lfs_does_not_keep_is_refused_by_its_name(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "origin")
    repository.git("lfs", "install", "--local", "--skip-repo")
    repository.commit(".gitattributes", ATTRIBUTES)
    commit = repository.commit("model.bin", "weights")
    shutil.rmtree(repository.path / ".git" / "lfs")
    source = GitSource(url=repository.url, ref=commit, lfs=True)
    with pytest.raises(Refused, match=r"pointer of Git LFS for `model\.bin`"):
        asyncio.run(gitsource.check_out_commit(LocalLayout(tmp_path / "home"), source))
    done = run(source, tmp_path / "clone")
    assert done.returncode != 0 and "model.bin" in done.stderr and "missing object" in done.stderr


def test_lfs_without_the_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="git-lfs"):
        git.check_lfs()


def test_a_sandbox_without_git_lfs_says_so(repository: Repository, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("git", "mkdir", "sh"):
        (programs / name).symlink_to(shutil.which(name) or "")
    done = run(GitSource(url=repository.url, lfs=True), tmp_path / "clone", PATH=str(programs))
    assert done.returncode == 127 and "no git-lfs" in done.stderr


def test_a_task_sees_its_commit_by_the_names_that_programs_know() -> None:
    commit, url = "a" * 40, "https://user@example.org/a.git"
    given = {"script": "x", "env": {"WANDB_GIT_COMMIT": "mine"}}
    template = Template.model_validate({**given, "source": {"git": {"url": url, "ref": commit}}})
    seen = commit_variables(template, ["MLFLOW_RUN_CONTEXT"])
    assert seen == {
        "FLEETCTL_SOURCE_COMMIT": commit,
        "WANDB_GIT_REMOTE_URL": "https://example.org/a.git",
    }
    moving = Template.model_validate({**given, "source": {"git": {"url": url, "ref": "main"}}})
    assert commit_variables(moving, []) == {}
