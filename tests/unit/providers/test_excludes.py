"""Patterns that keep files out of a source."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.guest.outputs.selection import Automaton, expression_of, pieces_of
from fleetctl.providers.sources.excludes import DEFAULTS, DockerExcludes, Excludes


@pytest.mark.parametrize(
    ("pattern", "out", "kept"),
    [
        ("*.pyc", ["a.pyc", "deep/er/b.pyc"], ["a.py"]),
        ("build/", ["build", "x/build"], ["builds"]),
        ("/build", ["build"], ["x/build"]),
        ("docs/*.md", ["docs/a.md"], ["docs/x/a.md", "y/docs/a.md"]),
        ("docs/**/*.md", ["docs/a.md", "docs/x/y/a.md"], ["a.md"]),
        ("**/cache", ["cache", "a/b/cache"], ["cached"]),
        ("data/**", ["data/a", "data/a/b"], ["data"]),
        ("file[0-9].txt", ["file1.txt"], ["filea.txt"]),
        ("file[!0-9].txt", ["filea.txt"], ["file1.txt"]),
        ("a?c", ["abc"], ["ac", "a/c"]),
        ("# comment", [], ["# comment"]),
        ("", [], ["a"]),
    ],
)
def test_patterns_mean_what_they_mean_in_gitignore(
    pattern: str, out: list[str], kept: list[str]
) -> None:
    excludes = Excludes((pattern,))
    assert [path for path in out if not excludes.match(path, is_directory=True)] == []
    assert [path for path in kept if excludes.match(path, is_directory=True)] == []


def test_a_pattern_for_directories_leaves_files_alone() -> None:
    assert not Excludes(("build/",)).match("build", is_directory=False)


def test_a_later_rule_takes_back_in() -> None:
    excludes = Excludes(("*.log", "!keep.log"))
    assert excludes.match("a.log", is_directory=False)
    assert not excludes.match("sub/keep.log", is_directory=False)


def test_what_nobody_wants_is_out_at_every_depth() -> None:
    excludes = Excludes(DEFAULTS)
    for name in (".git", ".venv", "__pycache__", "node_modules"):
        assert excludes.match(name, is_directory=True)
        assert excludes.match(f"packages/a/{name}", is_directory=True)


def test_git_agrees(tmp_path: Path) -> None:
    patterns = ["*.o", "/top", "a/*.x", "b/**/c", "!keep.o", "dir/", "[ab].y", "lit\\*eral"]
    paths = [
        *("x.o", "keep.o", "s/keep.o", "top", "s/top", "a/q.x", "a/s/q.x", "b/c", "b/1/2/c"),
        *("dir", "s/dir", "a.y", "c.y", "lit*eral", "literal"),
    ]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("\n".join(patterns))
    excludes = Excludes(patterns)
    for path in paths:
        done = subprocess.run(["git", "-C", str(tmp_path), "check-ignore", "-q", "--", path])
        assert excludes.match(path, is_directory=False) == (done.returncode == 0), path


@pytest.mark.parametrize(
    ("lines", "out", "kept"),
    [
        (["out"], ["out", "out/a", "out/b/c"], ["outer", "x/out"]),
        (["out/"], ["out", "out/a"], ["x/out"]),
        (["/out", "!out/keep"], ["out", "out/a"], ["out/keep"]),
        (["out", "!out/b"], ["out/a"], ["out/b", "out/b/c"]),
        (["out", "!out/b", "out/b/c"], ["out/b/c", "out/b/c/d"], ["out/b"]),
        (["*", "!src"], ["a.py", "data/x"], ["src", "src/a.py"]),
        (["**/*.tmp"], ["a.tmp", "x/y/a.tmp"], ["a.py"]),
        (["*.md", "!README*.md", "README-secret.md"], ["a.md", "README-secret.md"], ["README.md"]),
        (["*/temp*"], ["x/temporary.txt", "x/temp/a"], ["x/y/temp", "temp"]),
        (["x/../out", "./a//b"], ["out/a", "a/b"], ["x", "a"]),
        (["# comment", "", "!", "."], [], ["# comment", "a"]),
    ],
)
def test_patterns_of_a_dockerignore_speak_of_all_below_what_they_name(
    lines: list[str], out: list[str], kept: list[str]
) -> None:
    excludes = DockerExcludes(lines)
    assert [path for path in out if not excludes.decide(path)] == []
    assert [path for path in kept if excludes.decide(path)] == []


def test_only_directories_that_a_rule_takes_back_from_are_looked_into() -> None:
    excludes = DockerExcludes(["*", "!src/deep/a.py"])
    assert excludes.takes_back_below("src")
    assert excludes.takes_back_below("src/deep")
    assert not excludes.takes_back_below("data")
    assert not excludes.takes_back_below("src/de")
    assert DockerExcludes(["*", "!**/a.py"]).takes_back_below("data")
    assert not DockerExcludes(["*"]).takes_back_below("data")


@given(
    st.text(alphabet="ab/*?[]!.\\\\", max_size=9), st.text(alphabet="ab/.", min_size=1, max_size=12)
)
def test_the_automaton_takes_what_the_expression_takes(glob: str, path: str) -> None:
    pieces = pieces_of(glob)
    try:
        expression = re.compile(expression_of(pieces), re.DOTALL)
        automaton = Automaton(pieces)
    except re.error:
        return
    assert automaton.fullmatch(path) == bool(expression.fullmatch(path))


@pytest.mark.parametrize(
    "pattern",
    [
        "*a" * 30 + "b",
        "**/" * 30 + "b",
        "a**" * 30 + "b",
        "/" + "*a*" * 20 + "/b",
        pytest.param("*a" * 5 + "b", id="five-stars"),
    ],
)
@pytest.mark.parametrize("sort", [Excludes, DockerExcludes])
def test_no_pattern_and_no_name_take_long(
    pattern: str, sort: type[Excludes] | type[DockerExcludes]
) -> None:
    excludes = sort([pattern])
    begun_s = time.process_time()
    for path in ("a" * 200, "/".join("a" * 400), "a" * 250 + "/b" * 100):
        if isinstance(excludes, Excludes):
            excludes.decide(path, is_directory=False)
        else:
            excludes.decide(path)
        assert time.process_time() - begun_s < 5.0
