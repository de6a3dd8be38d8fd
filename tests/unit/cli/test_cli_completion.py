"""The tab key: what can follow, as `__complete` answers it and as a real bash shows it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.cli.command.verbs import VERBS
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.controllers.model import Resource
from fleetctl.stores.sqlite.store import open_store
from tests.unit.cli.terminals import Terminal


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
    assert run_guarded(["__complete", *line], Screen(out, talk)) == 0
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
        (["explain", "job.spec.par"], ["job.spec.parallelism", "job.spec.paramsFrom"]),
        (["schema", "--kind", "Sw"], ["Sweep"]),
        (["completion", "z"], ["zsh"]),
        (
            ["init", "--example", "sweep"],
            [
                "sweep",
                *(f"sweep-{it}" for it in ("early", "grid", "local-and-cloud")),
                *(f"sweep-{it}" for it in ("wandb", "wandb-account", "winner")),
            ],
        ),
        (["set", "job/alpha", "budg"], ["budget."]),
        (["set", "job/alpha", "parallelism=3", "budget.maxC"], ["budget.maxCost="]),
        (["set", "job/alpha", "nonsense.x"], []),
        (["get", "jobs", "--field-selector", "statu"], ["status="]),
        (
            ["get", "jobs", "--field-selector", "gpu=x,status=Su"],
            ["gpu=x,status=Succeeded", "gpu=x,status=Suspended"],
        ),
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
    assert run_guarded(["completion", shell], Screen(out, io.StringIO())) == 0
    return out.getvalue()


NEEDED = [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("bash", "zsh", "fish")]


@pytest.mark.parametrize("shell", NEEDED)
def test_a_shell_takes_the_script(shell: str, tmp_path: Path) -> None:
    text = script(shell)
    assert "__complete" in text
    path = tmp_path / "script"
    path.write_text(text)
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "--interactive"],
}
LOADING = {
    "bash": "source <(fleetctl completion bash); echo load''ed\n",
    "zsh": "autoload -Uz compinit; compinit -D; source <(fleetctl completion zsh); echo load''ed\n",
    "fish": "fleetctl completion fish | source; echo load''ed\n",
}
KILL_LINE = "\x15"


@pytest.mark.parametrize("shell", NEEDED)
def test_the_tab_key_writes_the_rest_of_a_word(shell: str, home: Path, tmp_path: Path) -> None:
    """An interactive shell on a terminal, with the script loaded as its help says."""
    programs = tmp_path / "bin"
    programs.mkdir()
    fleetctl = programs / "fleetctl"
    fleetctl.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fleetctl.cli.main "$@"\n')
    fleetctl.chmod(0o755)
    (tmp_path / "file.yaml").touch()
    path = f"{programs}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "PS1": "> ", "TERM": "dumb", "HOME": str(tmp_path)}
    with Terminal(SHELLS[shell], environ, tmp_path, size=(40, 120)) as terminal:
        terminal.types(LOADING[shell], until="loaded")
        for typed, completed in (
            ("fleetctl get job/alph\t", "job/alpha"),
            ("fleetctl get jobs -o ya\t", "yaml"),
            ("fleetctl expl\t", "explain"),
            ("fleetctl explain job.spec.template.resou\t", "resources"),
            ("fleetctl apply -f fil\t", "file.yaml"),
            ("fleetctl logs job/alpha --fai\t", "--failed"),
            # Of two names fish writes the first; the others list both.
            ("fleetctl describe jobs alp\t\t", "alpha" if shell == "fish" else "alps"),
        ):
            terminal.types(typed, until=completed)
            terminal.types(f"{KILL_LINE}echo don''e\n", until="done")


@pytest.mark.parametrize(
    ("shell", "fragments"),
    [
        ("bash", ["complete ", "COMP_WORDS", "_fleetctl"]),
        ("zsh", ["#compdef fleetctl", "compdef _fleetctl fleetctl", "_files", "compadd"]),
        ("fish", ["complete -c fleetctl", "commandline -opc", "__fish_complete_path"]),
    ],
)
def test_a_script_binds_the_program_in_the_words_of_its_shell(
    shell: str, fragments: list[str]
) -> None:
    text = script(shell)
    assert all(fragment in text for fragment in fragments)
    assert f"source <(fleetctl completion {shell})" in text or "| source" in text
