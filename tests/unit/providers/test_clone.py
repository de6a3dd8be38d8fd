"""The command that clones a source in a sandbox, run here by the shells that sandboxes have."""

from __future__ import annotations

import asyncio
import base64
import http.server
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused
from fleetctl.providers.modal.assets import modal_images
from fleetctl.providers.sources import clone_command
from fleetctl.providers.sources.pinning import pin_commit, revision_in
from fleetctl.specs.blocks.template import GitSource, Template
from tests.unit.providers.test_gitsource import HOSTILE, Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "origin")
    made.commit("main.py", "one")
    return made


def run(source: GitSource, directory: Path, **env: str) -> subprocess.CompletedProcess[str]:
    path = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(directory.parent)}
    return subprocess.run(
        clone_command.clone_command(source, str(directory)),
        env=path | env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_branch_tag_commit_and_default_are_found(repository: Repository, tmp_path: Path) -> None:
    first = repository.git("rev-parse", "HEAD")
    repository.git("tag", "-a", "v1", "-m", "v1")
    repository.git("branch", "feature/x")
    repository.commit("main.py", "two")
    texts = {}
    for number, ref in enumerate((None, "main", "v1", "feature/x", first, first[:10])):
        place = tmp_path / f"clone-{number}" / "deep"
        done = run(GitSource(url=repository.url, ref=ref), place)
        assert done.returncode == 0, done.stderr
        texts[ref] = (place / "main.py").read_text()
    assert texts == {
        None: "two", "main": "two", "v1": "one", "feature/x": "one", first: "one",
        first[:10]: "one",
    }  # fmt: skip


def test_an_unknown_ref_fails_and_says_so(repository: Repository, tmp_path: Path) -> None:
    done = run(GitSource(url=repository.url, ref="nope"), tmp_path / "clone")
    assert done.returncode != 0
    assert "nope" in done.stderr


def test_an_image_without_git_is_told(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = run(GitSource(url=repository.url), tmp_path / "clone", PATH=str(tmp_path / "bin"))
    assert done.returncode == clone_command.NO_GIT
    assert "the image has no git" in done.stderr


def test_submodules_come_only_when_asked_for(repository: Repository, tmp_path: Path) -> None:
    inner = Repository(tmp_path / "inner")
    inner.commit("lib.py", "lib")
    allow = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow"}
    allow["GIT_CONFIG_VALUE_0"] = "always"
    (repository.path / ".gitmodules").write_text(
        f'[submodule "lib"]\n\tpath = lib\n\turl = {inner.url}\n'
    )
    commit = inner.git("rev-parse", "HEAD")
    repository.git("add", "-A")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},lib")
    repository.git("commit", "-qm", "lib")
    for wanted in (False, True):
        place = tmp_path / f"clone-{wanted}"
        source = GitSource(url=repository.url, submodules=wanted)
        assert run(source, place, **allow).returncode == 0
        assert (place / "lib" / "lib.py").exists() is wanted


@pytest.mark.parametrize("url", HOSTILE)
def test_a_url_that_git_could_misread_makes_no_command(url: str) -> None:
    with pytest.raises(Refused):
        clone_command.clone_command(
            GitSource.model_construct(url=url, ref=None, submodules=False), "/x"
        )


class Served:
    """A repository over plain HTTP on loopback, with or without a password; remembers what it was
    told.
    """

    def __init__(self, repository: Repository, *, private: bool) -> None:
        self.passwords: list[str] = []
        self.repository = repository
        self.bare = repository.path.parent / "served.git"
        self.publish()
        told, folder = self.passwords, str(self.bare.parent)

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *args: object, **options: object) -> None:
                super().__init__(*args, directory=folder, **options)  # type: ignore[arg-type]

            def do_GET(self) -> None:
                kind, _, code = self.headers.get("Authorization", "").partition(" ")
                if private and kind != "Basic":
                    self.send_response(401)
                    self.send_header("WWW-Authenticate", "Basic")
                    self.end_headers()
                    return
                if code:
                    told.append(base64.b64decode(code).decode())
                super().do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/served.git"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def publish(self) -> None:
        """Show what the repository has now."""
        shutil.rmtree(self.bare, ignore_errors=True)
        clone = ["git", "clone", "-q", "--bare", self.repository.url, str(self.bare)]
        subprocess.run(clone, check=True)
        subprocess.run(["git", "-C", str(self.bare), "update-server-info"], check=True)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def private(repository: Repository) -> Iterator[Served]:
    made = Served(repository, private=True)
    yield made
    made.close()


@pytest.fixture
def public(repository: Repository) -> Iterator[Served]:
    made = Served(repository, private=False)
    yield made
    made.close()


def test_a_private_repository_is_cloned_with_a_token_of_the_environment(
    private: Served, tmp_path: Path
) -> None:
    done = run(GitSource(url=private.url, ref="main"), tmp_path / "clone", GIT_TOKEN="tok-1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "clone" / "main.py").read_text() == "one"
    assert set(private.passwords) == {"x-access-token:tok-1"}


def test_a_token_is_in_no_argument_no_file_and_no_output(private: Served, tmp_path: Path) -> None:
    source = GitSource(url=private.url, ref="main")
    done = run(source, tmp_path / "clone", GIT_TOKEN="tok-1", GIT_USERNAME="me")
    assert set(private.passwords) == {"me:tok-1"}
    assert "tok-1" not in done.stdout + done.stderr + " ".join(
        clone_command.clone_command(source, "/x")
    )
    kept = [one for one in (tmp_path / "clone").rglob("*") if one.is_file()]
    assert not any(b"tok-1" in one.read_bytes() for one in kept)


def test_without_a_token_it_fails_instead_of_asking(private: Served, tmp_path: Path) -> None:
    done = run(GitSource(url=private.url, ref="main"), tmp_path / "clone")
    assert done.returncode != 0
    assert private.passwords == []


def test_a_token_of_the_sources_host_goes_to_no_other(private: Served, tmp_path: Path) -> None:
    """A submodule elsewhere asks for a password as well."""
    other = GitSource(url="https://example.org/a.git")
    command = clone_command.clone_command(other, str(tmp_path / "clone"))
    command[4] = private.url  # as git would fetch it below a source of example.org
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "GIT_TOKEN": "tok-1"}
    done = subprocess.run(command, env=env, capture_output=True, check=False)
    assert done.returncode != 0
    assert private.passwords == []


@pytest.mark.parametrize(
    "shell", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("dash", "bash")]
)
def test_every_shell_of_images_can_run_it(
    shell: str, repository: Repository, tmp_path: Path
) -> None:
    found = str(shutil.which(shell))
    command = clone_command.clone_command(GitSource(url=repository.url), str(tmp_path / "clone"))
    done = subprocess.run([found, *command[1:]], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def template(**source: object) -> Template:
    return Template.model_validate({"script": "true", "source": source})


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({"git": {"url": "https://github.com/NovaSky-AI/SkyRL.git"}}, "/root/SkyRL"),
        ({"git": {"url": "https://x.org/a"}, "mountPath": "/srv/b/"}, "/srv/b"),
        ({"path": "/home/me/my code"}, "/root/my code"),
        ({"path": "/home/me/x", "mountPath": "/opt/y"}, "/opt/y"),
    ],
)
def test_a_source_has_a_place_in_the_sandbox(source: dict[str, object], place: str) -> None:
    assert modal_images.setup_commands(template(**source))[1] == place


def test_a_directory_needs_a_command_where_an_archive_came_with_it(tmp_path: Path) -> None:
    (command,), place = modal_images.setup_commands(template(path="/home/me/x"))
    assert place == "/root/x"
    assert subprocess.run(command, cwd=tmp_path, check=True).returncode == 0  # there is none
    assert modal_images.setup_commands(Template(script="true")) == ([], None)


def test_a_pinned_commit_is_what_is_cloned(repository: Repository, tmp_path: Path) -> None:
    first = repository.git("rev-parse", "HEAD")
    repository.commit("main.py", "two")
    (command,), _ = modal_images.setup_commands(
        template(git={"url": repository.url, "ref": "main"}), first
    )
    command[6] = str(tmp_path / "clone")
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "clone" / "main.py").read_text() == "one"


def test_all_runs_of_a_template_get_the_same_commit(public: Served, tmp_path: Path) -> None:
    wanted = template(git={"url": public.url, "ref": "main"})
    first = public.repository.git("rev-parse", "HEAD")
    assert revision_in(wanted, tmp_path / "job") == ""
    assert asyncio.run(pin_commit(wanted, tmp_path / "job")) == first
    second = public.repository.commit("main.py", "two")
    public.publish()
    assert asyncio.run(pin_commit(wanted, tmp_path / "job")) == first
    assert asyncio.run(pin_commit(wanted, tmp_path / "another job")) == second
    # From then on it is known which commit the runs have; a function's containers have their own.
    assert revision_in(wanted, tmp_path / "job") == first
    called = wanted.model_copy(update={"runtime": "function"})
    assert revision_in(called, tmp_path / "job") == ""


def test_a_ref_that_the_remote_does_not_have_is_refused_before_a_sandbox_is_made(
    public: Served, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match="`nope` is not in"):
        asyncio.run(pin_commit(template(git={"url": public.url, "ref": "nope"}), tmp_path))


@pytest.mark.parametrize("ref", ["abcdef1", "main"])
def test_what_this_machine_cannot_ask_is_left_to_the_sandbox(
    private: Served, public: Served, ref: str, tmp_path: Path
) -> None:
    served = public if ref == "abcdef1" else private
    wanted = template(git={"url": served.url, "ref": ref})
    for _ in range(2):
        assert asyncio.run(pin_commit(wanted, tmp_path / "job")) is None
        assert revision_in(wanted, tmp_path / "job") == ""
    assert len(list((tmp_path / "job").iterdir())) == 1
    assert asyncio.run(pin_commit(template(path="/x"), tmp_path / "job")) is None
