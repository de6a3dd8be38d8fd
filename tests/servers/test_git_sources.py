"""Repositories as they are in life: git's own server over TLS with a token, ssh with a key and a
pinned host, signed commits, force-pushes; read by the SourceKeeper of a controller into a real
store."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import Resource
from fleetctl.engine.execute.secrets import ResolvedSecrets
from fleetctl.gitops.git_keeper import PLACE, GitKeeper
from fleetctl.gitops.proposal import CommitProposal
from fleetctl.manifest import ManifestErrors
from fleetctl.specs.kinds.source import SourceSpec
from fleetctl.wiring.account_registry import open_store
from tests.emulators.git_https import GitServer, git_server
from tests.unit.engine.fake_remote import job

TOKEN = "glpat-canary-5511"
WHO = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")


class Forge:
    """A work tree whose pushes go to a bare repository that a server may offer."""

    def __init__(self, root: Path) -> None:
        self.root, self.tree, self.bare = root, root / "tree", root / "bare" / "fleet.git"
        self.bare.parent.mkdir(parents=True)
        self.run("init", "-q", "--bare", "-b", "main", str(self.bare), cwd=root)
        self.run("init", "-q", "-b", "main", str(self.tree), cwd=root)

    def run(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *WHO, *words], cwd=cwd or self.tree, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def push(self, files: dict[str, str], *options: str) -> str:
        """The tree is just these files. options: of `git commit`."""
        for path in self.tree.iterdir():
            if path.name != ".git":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name, text in files.items():
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / name).write_text(text)
        self.run("add", "-A")
        self.run("commit", "-q", "--allow-empty", "-m", "change", *options)
        self.run("push", "-q", "--force", str(self.bare), "HEAD:main")
        return self.run("rev-parse", "HEAD")


class Reader:
    """A Keeper over a store of its own. values: of the Secret that a Source names."""

    def __init__(self, home: Path, values: dict[str, str]) -> None:
        self.home, self.store = home, open_store(home, SystemClock())
        self.keeper = GitKeeper(home, self.store, lambda _names, _within: ResolvedSecrets(values))
        self.source = Resource("u1", "Source", "fleet", 1, 1, "{}", "", {}, {}, 1.0)

    def read(self, **git: Any) -> CommitProposal:
        return asyncio.run(self._read(**git))

    async def _read(self, **git: Any) -> CommitProposal:
        spec = self.spec(**git)
        commit = await self.keeper.tip(self.source, spec)
        found = await self.keeper.read(self.source, spec, commit)
        assert isinstance(found, CommitProposal)
        return found

    def spec(self, **git: Any) -> SourceSpec:
        return SourceSpec.model_validate({"git": {"secret": "key", **git}, "prune": True})

    def keep(self, found: CommitProposal) -> list[str]:
        with self.store.transaction():
            self.keeper.keep(found, (), approved=True, now_s=2.0)
        return sorted(it.name for it in self.store.resources.list() if it.deleted_at_s is None)


@pytest.fixture
def forge(tmp_path: Path) -> Forge:
    return Forge(tmp_path)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path / "home", {"GIT_TOKEN": TOKEN})
    yield made
    made.store.close()


@pytest.fixture
def server(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitServer]:
    with git_server(forge.bare.parent, TOKEN) as made:
        monkeypatch.setenv("GIT_SSL_CAINFO", str(made.ca))
        yield made


def test_https_with_a_token_follows_pushes_and_force_pushes(
    forge: Forge, reader: Reader, server: GitServer
) -> None:
    url = f"{server.url}/fleet.git"
    first = forge.push({"jobs/a.yaml": job("a"), "jobs/b.yaml": job("b"), "readme.md": "hi"})
    found = reader.read(url=url, path="jobs")
    assert found.commit == first
    assert reader.keep(found) == ["a", "b"]
    assert ("x-access-token", TOKEN) in server.asked
    forge.run("commit", "-q", "--amend", "-m", "another history")
    forced = forge.push({"jobs/c.yaml": job("c"), "jobs/b.yaml": job("b")}, "--amend")
    found = reader.read(url=url, path="jobs")
    assert found.commit == forced
    assert reader.keep(found) == ["b", "c"]
    assert reader.read(url=url, path="jobs").items == ()
    kept = [it for it in (reader.home / PLACE).rglob("*") if it.is_file()]
    assert not any(TOKEN.encode() in it.read_bytes() for it in kept)


def test_without_its_token_the_remote_is_unreachable(
    forge: Forge, server: GitServer, tmp_path: Path
) -> None:
    forge.push({"a.yaml": job("a")})
    other = Reader(tmp_path / "other", {})
    with pytest.raises(Unavailable, match="cannot be fetched") as caught:
        other.read(url=f"{server.url}/fleet.git")
    assert caught.value.reason == "SourceUnreachable"
    other.store.close()


def test_a_token_is_never_sent_in_clear(reader: Reader) -> None:
    with pytest.raises(Refused, match="a token is not sent over `http`"):
        reader.read(url="http://127.0.0.1:9/fleet.git")


def test_wrong_files_are_named_as_in_the_repository(forge: Forge, reader: Reader) -> None:
    forge.push({"jobs/a.yaml": job("a"), "jobs/deep/b.yaml": job("b", parallelism=-1)})
    with pytest.raises(ManifestErrors) as caught:
        reader.read(url=f"file://{forge.bare}", path="jobs", secret=None)
    assert str(caught.value).startswith("jobs/deep/b.yaml:6:16: spec.parallelism is `-1`")
    with pytest.raises(Refused, match="there is no directory `nowhere`"):
        reader.read(url=f"file://{forge.bare}", path="nowhere", secret=None)


def test_files_outside_of_the_repository_are_not_read(forge: Forge, tmp_path: Path) -> None:
    other = Reader(tmp_path / "other", {})
    url = f"file://{forge.bare}"
    (tmp_path / "secret.yaml").write_text(job("b"))
    (tmp_path / "environ").write_text("TOKEN=canary\0PATH=/bin")
    image = f"image: {{pip: [-r {tmp_path}/environ]}}"
    wrong = job("a").replace("template: {", f"template: {{{image}, ")
    forge.push({"a.yaml": wrong})
    with pytest.raises(ManifestErrors, match="it is outside of the repository") as caught:
        other.read(url=url)
    assert "canary" not in str(caught.value)
    forge.push({"a.yaml": job("a")})
    (forge.tree / "b.yaml").symlink_to(tmp_path / "secret.yaml")
    forge.run("add", "-A")
    forge.run("commit", "-q", "-m", "link")
    forge.run("push", "-q", str(forge.bare), "HEAD:main")
    with pytest.raises(ManifestErrors, match="it is outside of the repository"):
        other.read(url=url)
    other.store.close()


def test_a_pointer_of_lfs_is_no_file_of_another_tool(forge: Forge, tmp_path: Path) -> None:
    other = Reader(tmp_path / "other", {})
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    forge.push({"a.yaml": job("a"), "b.yaml": pointer})
    with pytest.raises(ManifestErrors, match=r"b.yaml.*it is a pointer of Git LFS"):
        other.read(url=f"file://{forge.bare}")
    other.store.close()


def test_submodules_come_and_go_and_lead_to_no_repository_of_this_machine(
    forge: Forge, reader: Reader, server: GitServer, tmp_path: Path
) -> None:
    inner = Forge(tmp_path / "inner")
    inner.push({"b.yaml": job("b")})
    forge.push({"a.yaml": job("a")})
    url = f"file://{forge.bare}"
    other = Reader(tmp_path / "other", {})
    allow = ("-c", "protocol.file.allow=always")
    forge.run(*allow, "submodule", "add", "-q", f"file://{inner.bare}", "inner")
    forge.run("commit", "-q", "-m", "inner")
    forge.run("push", "-q", str(forge.bare), "HEAD:main")
    assert other.read(url=url, submodules=True).objects == 2
    assert other.read(url=url, submodules=False).objects == 1
    other.store.close()
    with pytest.raises(Unavailable, match="transport 'file' not allowed"):
        reader.read(url=f"{server.url}/fleet.git", submodules=True)


def test_what_is_half_fetched_is_not_read(forge: Forge, reader: Reader) -> None:
    forge.push({"a.yaml": job("a"), "b.yaml": job("b")})
    url = f"file://{forge.bare}"
    assert reader.keep(reader.read(url=url, secret=None)) == ["a", "b"]
    forge.push({"b.yaml": job("b"), "c.yaml": job("c")})
    blob = forge.run("rev-parse", "HEAD:c.yaml")
    (forge.bare / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises((Unavailable, Refused)):
        reader.read(url=url, secret=None)


def keys(place: Path, name: str) -> Path:
    made = place / name
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(made)]
    subprocess.run(argv, check=True, capture_output=True)
    return made


def test_a_commit_that_a_named_signer_signed_is_read_and_no_other(
    forge: Forge, reader: Reader, tmp_path: Path
) -> None:
    mine, other = keys(tmp_path, "mine"), keys(tmp_path, "other")
    public = " ".join(mine.with_suffix(".pub").read_text().split()[:2])
    about = {"url": f"file://{forge.bare}", "secret": None}
    about["verify"] = {"ssh": [f"ada@example.org {public}"]}
    forge.run("config", "gpg.format", "ssh")
    forge.run("config", "user.signingkey", str(mine))
    forge.push({"a.yaml": job("a")}, "-S")
    assert reader.keep(reader.read(**about)) == ["a"]
    for options in ((), ("-S",)):
        forge.run("config", "user.signingkey", str(other))
        forge.push({"b.yaml": job("b")}, *options)
        with pytest.raises(Refused, match=r"is not signed by a signer in `verify.ssh`"):
            reader.read(**about)


def test_a_gpg_signature_counts_by_the_keys_of_the_source_alone(
    forge: Forge, reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "g"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    made = ["--batch", "--passphrase", "", "--quick-gen-key", "ada@example.org", "ed25519", "sign"]
    subprocess.run(["gpg", "--quiet", *made], check=True, capture_output=True)
    shown = ["gpg", "--export", "--armor", "ada@example.org"]
    public = subprocess.run(shown, check=True, capture_output=True, text=True).stdout
    try:
        forge.push({"a.yaml": job("a")}, "-Sada@example.org")
    finally:
        subprocess.run(["gpgconf", "--kill", "gpg-agent"], check=True, capture_output=True)
    about = {"url": f"file://{forge.bare}", "secret": None}
    assert reader.keep(reader.read(**about, verify={"gpg": [public]})) == ["a"]
    # The key is in the keyring of this user, and that does not count.
    stranger = " ".join(keys(tmp_path, "x").with_suffix(".pub").read_text().split()[:2])
    with pytest.raises(Refused, match="is not signed by"):
        reader.read(**about, verify={"ssh": [f"eve@example.org {stranger}"]})


SSH = """#!/bin/sh
# In place of ssh: what it was told is kept, and the command runs here.
for word; do printf '%s\\n' "$word" >> "{told}"; last=$word; done
case "$*" in *StrictHostKeyChecking=yes*) ;; *) exit 255;; esac
key=; hosts=
for word; do
  case "$word" in -oUserKnownHostsFile=*) hosts=${{word#*=}};; esac
  test "$before" = -i && key=$word
  before=$word
done
grep -q "{pinned}" "$hosts" || {{ echo "Host key verification failed." >&2; exit 255; }}
grep -q "{secret}" "$key" || exit 255
test "$(stat -c %a "$key")" = 600 || exit 255
eval "exec git ${{last#git-}}"
"""


def test_ssh_gets_the_key_and_trusts_pinned_hosts_alone(
    forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, told = forge.push({"a.yaml": job("a")}), tmp_path / "told"
    programs = tmp_path / "bin"
    programs.mkdir()
    stand_in = programs / "ssh"
    stand_in.write_text(SSH.format(told=told, pinned="AAAAPINNED", secret="canary-key"))
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    made = Reader(tmp_path / "home", {"GIT_SSH_KEY": "-----canary-key-----"})
    about = {"url": f"git@example.org:{forge.bare}"}
    pinned = ("example.org ssh-ed25519 AAAAPINNED",)
    found = made.read(**about, knownHosts=pinned)
    assert found.commit == commit
    assert "canary-key" not in told.read_text()
    key = told.read_text().splitlines()[told.read_text().splitlines().index("-i") + 1]
    assert not Path(key).exists()
    with pytest.raises(Unavailable, match="Host key verification failed"):
        made.read(**about, knownHosts=("example.org ssh-ed25519 AAAAOTHER",))
    made.store.close()
