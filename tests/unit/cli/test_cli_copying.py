"""`cp`, `ls` and `rm` on volumes: where files go, what is refused, what links cannot do.

On provider `local`, through the real verbs; tests/servers holds Modal to the same rules.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.controllers.model import Resource
from fleetctl.stores.sqlite.store import open_store


class FixedClock:
    def now_s(self) -> float:
        return 1_800_000_000.0


class Shell:
    """The verbs, in a directory of their own, with one volume `data`."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.here = directory / "here"
        self.here.mkdir()
        store = open_store(self.home, FixedClock())
        with store.transaction():
            row = Resource("u", "Volume", "data", 1, 0, "{}", "", {}, {}, 5.0)
            store.resources.put(row, expected_version=None)
        store.close()

    @property
    def volume(self) -> Path:
        return self.home / "local" / "volumes" / "data"

    def run(self, *words: str) -> str:
        """stdout; fails unless the exit code is 0."""
        code, out, said = self.answer(*words)
        assert code == 0, said
        return out

    def answer(self, *words: str) -> tuple[int, str, str]:
        out, talk = io.StringIO(), io.StringIO()
        return run_guarded(list(words), Screen(out, talk)), out.getvalue(), talk.getvalue()

    def write(self, name: str, text: str = "") -> Path:
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or name)
        return path

    def put(self, name: str, text: str = "") -> Path:
        path = self.volume / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or name)
        return path

    def files(self, top: Path) -> list[str]:
        return sorted(str(one.relative_to(top)) for one in top.rglob("*") if one.is_file())


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    made = Shell(tmp_path)
    monkeypatch.setenv("FLEETCTL_HOME", str(made.home))
    monkeypatch.chdir(made.here)
    return made


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("volume/data", "a.txt"),
        ("vol/data:/", "a.txt"),
        ("volumes/data:/new.txt", "new.txt"),
        ("volume/data:no/slash.txt", "no/slash.txt"),
        ("volume/data:/deep/er/", "deep/er/a.txt"),
        ("volume/data:/there", "there/a.txt"),
        ("volume/data:/there/file", "there/file"),
    ],
)
def test_a_file_goes_where_docker_would_put_it(shell: Shell, target: str, place: str) -> None:
    shell.write("a.txt", "new")
    shell.put("there/file", "old")
    shell.run("cp", "a.txt", target)
    assert (shell.volume / place).read_text() == "new"


@pytest.mark.parametrize(
    ("source", "target", "place"),
    [
        ("d", "volume/data:/fresh", "fresh"),
        ("d", "volume/data:/there", "there/d"),
        ("d", "volume/data", "d"),
        ("d/.", "volume/data:/there", "there"),
        ("d/.", "volume/data:/", ""),
    ],
)
def test_a_directory_goes_where_docker_would_put_it(
    shell: Shell, source: str, target: str, place: str
) -> None:
    shell.write("d/a")
    shell.write("d/sub/b")
    shell.put("there/old")
    shell.run("cp", source, target)
    assert (shell.volume / place / "a").read_text() == "d/a"
    assert (shell.volume / place / "sub" / "b").read_text() == "d/sub/b"
    assert (shell.volume / "there" / "old").exists()


@pytest.mark.parametrize(
    ("source", "target", "places"),
    [
        ("volume/data:/d/a", "out", ["out"]),
        ("volume/data:/d/a", ".", ["a"]),
        ("volume/data:/d", "fresh", ["fresh/a", "fresh/sub/b"]),
        ("volume/data:/d", ".", ["d/a", "d/sub/b"]),
        ("volume/data:/d/.", ".", ["a", "sub/b"]),
        ("volume/data", ".", ["data/d/a", "data/d/sub/b"]),
        ("volume/data:/.", "fresh", ["fresh/d/a", "fresh/d/sub/b"]),
    ],
)
def test_copies_out_of_a_volume_follow_the_same_rules(
    shell: Shell, source: str, target: str, places: list[str]
) -> None:
    shell.put("d/a")
    shell.put("d/sub/b")
    shell.run("cp", source, target)
    assert shell.files(shell.here) == places


def test_a_file_is_written_over_and_keeps_its_mode(shell: Shell) -> None:
    shell.write("run.sh", "new").chmod(0o755)
    shell.put("run.sh", "old")
    shell.run("cp", "run.sh", "volume/data:/run.sh")
    assert (shell.volume / "run.sh").read_text() == "new"
    assert (shell.volume / "run.sh").stat().st_mode & 0o111
    assert shell.files(shell.volume) == ["run.sh"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("a", "b"), 2, "between this machine and a volume"),
        (("volume/data:/a", "volume/data:/b"), 2, "by way of this machine"),
        (("nope", "volume/data"), 4, "no file or directory `nope`"),
        (("a", "volume/nope:/a"), 4, "there is no Volume `nope`"),
        (("volume/data:/nope", "x"), 4, "volume/data has no `/nope`"),
        (("d", "volume/data:/file"), 2, "is a file"),
        (("volume/data:/there", "a"), 2, "is a file"),
        (("volume/data:/file", "missing/x"), 4, "no directory `missing`"),
        (("volume/data:/file", "missing/"), 4, "no directory `missing/`"),
        (("volume/data:/file", "deep"), 3, "is a directory"),
        (("a", "volume/data:/../../out"), 2, "is not a path in a volume"),
        (("volume/data:/../x", "x"), 2, "is not a path in a volume"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    shell: Shell, words: tuple[str, str], code: int, says: str
) -> None:
    for name in ("a", "d/a", "deep/file/x"):
        shell.write(name)
    for name in ("file", "there/x"):
        shell.put(name)
    before = shell.files(shell.home / "local"), shell.files(shell.here)
    answered, _, said = shell.answer("cp", *words)
    assert (answered, says in said) == (code, True), said
    assert (shell.files(shell.home / "local"), shell.files(shell.here)) == before


def test_links_that_a_task_left_lead_nowhere(shell: Shell, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    shell.put("a")
    (shell.volume / "out").symlink_to(secret)
    (shell.volume / "up").symlink_to(tmp_path)
    for words in (("volume/data:/out", "x"), ("volume/data:/up/secret", "x")):
        code, _, said = shell.answer("cp", *words)
        assert (code, "leads out" in said) == (3, True)
    assert shell.answer("cp", shell.write("evil").name, "volume/data:/out")[0] == 3
    shell.run("cp", "volume/data:/.", "all")
    assert shell.files(shell.here) == ["all/a", "evil"]
    assert secret.read_text() == "s"


def test_links_to_files_are_copied_as_files_and_those_to_directories_are_told(shell: Shell) -> None:
    shell.write("d/a", "x")
    (shell.here / "d" / "link").symlink_to("a")
    (shell.here / "d" / "loop").symlink_to(".")
    code, _, said = shell.answer("cp", "d", "volume/data:/d")
    assert (code, shell.files(shell.volume)) == (0, ["d/a", "d/link"])
    assert "d/loop is left out" in said
    assert not (shell.volume / "d" / "link").is_symlink()


def test_a_local_path_that_looks_like_a_volume_can_be_meant(shell: Shell) -> None:
    shell.write("volume/data", "local")
    shell.run("cp", "./volume/data", "volume/data:/x")
    assert (shell.volume / "x").read_text() == "local"


def test_ls_shows_a_directory_and_all_below_when_asked(shell: Shell) -> None:
    os.utime(shell.put("a", "four"), (1_000_000_000, 1_000_000_000))
    shell.put("d/b")
    assert shell.run("ls", "volume/data", "-o", "name") == "/a\n/d/\n"
    assert shell.run("ls", "volume/data", "-R", "-o", "name") == "/a\n/d/\n/d/b\n"
    assert shell.run("ls", "volume/data:/d", "-o", "name") == "/d/b\n"
    (only,) = json.loads(shell.run("ls", "volume/data:/a", "-o", "json"))
    assert only == {"path": "/a", "type": "file", "size": 4, "modified": "2001-09-09T01:46:40Z"}


def test_ls_of_what_is_not_there_is_an_error_and_of_a_new_volume_is_not(shell: Shell) -> None:
    assert shell.answer("ls", "volume/data") == (0, "", "volume/data:/ is empty\n")
    assert shell.answer("ls", "volume/data:/x")[0] == 4
    assert shell.answer("ls", "volume/none")[0] == 4
    assert shell.answer("ls", "data")[0] == 2


def test_rm_takes_a_directory_only_when_told(shell: Shell) -> None:
    shell.put("d/a")
    shell.put("b")
    assert shell.answer("rm", "volume/data:/d")[0] == 3
    shell.run("rm", "volume/data:/d", "-r")
    shell.run("rm", "volume/data:/b")
    assert list(shell.volume.iterdir()) == []
    assert shell.answer("rm", "volume/data:/b")[0] == 4
    assert shell.answer("rm", "volume/data:/", "-r")[0] == 2


def test_rm_removes_a_link_and_not_what_it_leads_to(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    shell.put("a")
    (shell.volume / "link").symlink_to(tmp_path / "kept")
    shell.run("rm", "volume/data:/link", "-r")
    assert (tmp_path / "kept").is_dir()
    assert not (shell.volume / "link").is_symlink()


@pytest.mark.parametrize(
    ("link", "source", "target"),
    [
        ("d", "volume/data:/d", "."),
        ("sub", "volume/data:/d/.", "."),
        ("fresh/sub", "volume/data:/d/.", "fresh"),
        ("fresh/d/sub", "volume/data:/d", "fresh"),
    ],
)
def test_nothing_is_copied_through_a_link_of_the_users_own(
    shell: Shell, tmp_path: Path, link: str, source: str, target: str
) -> None:
    shell.put("d/a", "theirs")
    shell.put("d/sub/b", "theirs")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "a").write_text("mine")
    (shell.here / link).parent.mkdir(parents=True, exist_ok=True)
    (shell.here / link).symlink_to(mine)
    code, _, said = shell.answer("cp", source, target)
    assert (code, "nothing is copied through links" in said) == (3, True), said
    assert [it.name for it in mine.iterdir()] == ["a"]
    assert (mine / "a").read_text() == "mine"


def test_a_target_that_is_named_may_be_a_link_and_a_link_to_a_file_is_replaced(
    shell: Shell, tmp_path: Path
) -> None:
    shell.put("d/a", "theirs")
    mine, elsewhere = tmp_path / "mine", shell.write("secret", "mine")
    mine.mkdir()
    (mine / "a").symlink_to(elsewhere)
    (shell.here / "named").symlink_to(mine)
    shell.run("cp", "volume/data:/d/.", "named")
    assert (mine / "a").read_text() == "theirs"
    assert not (mine / "a").is_symlink()
    assert elsewhere.read_text() == "mine"
