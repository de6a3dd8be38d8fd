"""The tab key: what can follow, as `__complete` answers it and as a real bash shows it."""

from __future__ import annotations

import io
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from controllers.model import Resource
from fleetctl.cli.main import VERBS, guarded
from fleetctl.cli.render import Screen
from fleetctl.stores.sqlite import open_store

PATIENCE_S = 20.0


class FixedClock:
    def now_s(self) -> float:
        return 1_800_000_000.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    store = open_store(place, FixedClock())
    with store.transaction():
        for kind, name in (("BatchJob", "alpha"), ("BatchJob", "alps"), ("Volume", "data")):
            row = Resource(name, kind, name, 1, 0, "{}", "", {}, {}, 5.0)
            store.resources.put(row, expected_version=None)
        gone = Resource("gone", "BatchJob", "almost", 1, 0, "{}", "", {}, {}, 5.0, 6.0)
        store.resources.put(gone, expected_version=None)
    store.close()
    monkeypatch.setenv("FLEETCTL_HOME", str(place))
    return place


def words(*line: str) -> list[str]:
    out, talk = io.StringIO(), io.StringIO()
    assert guarded(["__complete", *line], Screen(out, talk)) == 0
    assert talk.getvalue() == ""
    return [text.partition("\t")[0] for text in out.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (["exp"], ["explain"]),
        (["help", "exp"], ["explain"]),
        (["get", "b"], ["batchjobs", "budgets"]),
        (["get", "j"], ["job", "jobs"]),
        (["get", "job/al"], ["job/alpha", "job/alps"]),
        (["get", "jobs", "alph"], ["alpha"]),
        (["get", "tasks", "bj/alph"], ["bj/alpha"]),
        (["get", "jobs", "-w", "alph"], ["alpha"]),
        (["describe", "jo"], ["job/"]),
        (["describe", "job", "alph"], ["alpha"]),
        (["logs", "job/alpha", "--fai"], ["--failed"]),
        (["get", "jobs", "-o", "js"], ["json", "jsonpath="]),
        (["get", "jobs", "--output=js"], ["--output=json", "--output=jsonpath="]),
        (["get", "jobs", "--output", "=", "js"], ["json", "jsonpath="]),
        (["wait", "job/alpha", "--for", "succ"], ["succeeded"]),
        (["apply", "-f", ""], [":files"]),
        (["cp", "volume/"], ["volume/data", ":files"]),
        (["rm", "vol"], ["volume/"]),
        (["explain", "swe"], ["sweep"]),
        (["explain", "job.spec.par"], ["job.spec.parallelism"]),
        (["schema", "--kind", "Sw"], ["Sweep"]),
        (["completion", "z"], ["zsh"]),
        (["nonsense", "x"], []),
        (["get", "nothing/x"], []),
        (["explain", "job.nonsense.x"], []),
    ],
)
def test_the_last_word_is_completed(home: Path, line: list[str], found: list[str]) -> None:
    assert words(*line) == found


def test_every_verb_can_be_completed_in_every_place(home: Path) -> None:
    for verb in VERBS:
        words(verb, "")
        assert "--help" in words(verb, "--h"), verb


def test_a_store_that_is_not_there_completes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "none"))
    assert words("get", "job/") == []


def script(shell: str) -> str:
    out = io.StringIO()
    assert guarded(["completion", shell], Screen(out, io.StringIO())) == 0
    return out.getvalue()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_that_is_here_takes_the_script(shell: str, tmp_path: Path) -> None:
    text = script(shell)
    assert "__complete" in text
    program = shutil.which(shell)
    if program is not None:
        path = tmp_path / "script"
        path.write_text(text)
        done = subprocess.run([program, "-n", str(path)], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_bash_writes_the_rest_of_a_word_when_the_tab_key_is_pressed(
    home: Path, tmp_path: Path
) -> None:
    """An interactive bash on a terminal, with the script loaded as its help says."""
    programs = tmp_path / "bin"
    programs.mkdir()
    fleetctl = programs / "fleetctl"
    fleetctl.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fleetctl.cli.main "$@"\n')
    fleetctl.chmod(0o755)
    (tmp_path / "file.yaml").touch()
    path = f"{programs}:{os.environ['PATH']}"
    with Terminal({**os.environ, "PATH": path, "PS1": "> ", "TERM": "dumb"}, tmp_path) as bash:
        bash.types("source <(fleetctl completion bash); echo load''ed\n", until="loaded")
        bash.types("fleetctl get job/alph\t", until="job/alpha ")
        bash.types("-o ya\t", until="yaml ")
        bash.types("\x15fleetctl expl\t", until="explain ")
        bash.types("job.spec.template.resou\t", until="resources ")
        bash.types("\x15fleetctl apply -f fil\t", until="file.yaml ")
        bash.types("\x15fleetctl describe jo\talp\t\t", until="job/alps")


class Terminal:
    """An interactive bash, and what it has shown since the last words were typed."""

    def __init__(self, environ: dict[str, str], directory: Path) -> None:
        self._environ = environ
        self._directory = directory

    def __enter__(self) -> Terminal:
        self._pid, self._screen = pty.fork()
        if self._pid == 0:
            os.chdir(self._directory)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], self._environ)
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._screen)  # hangs up
        os.waitpid(self._pid, 0)

    def types(self, text: str, *, until: str) -> None:
        os.write(self._screen, text.encode())
        shown, give_up_at_s = "", time.monotonic() + PATIENCE_S
        while until not in shown:
            left_s = give_up_at_s - time.monotonic()
            assert left_s > 0 and select.select([self._screen], [], [], left_s)[0], repr(shown)
            shown += os.read(self._screen, 4096).decode(errors="replace")
