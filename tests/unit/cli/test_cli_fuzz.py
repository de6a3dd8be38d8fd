"""No bug reaches a person: every verb with words that make no sense, over stores that are broken,
against a controller that answers nonsense. Whatever comes, it is a line and a code of the table.
"""

from __future__ import annotations

import io
import random
import shutil
import sqlite3
from argparse import Action
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.cli.command.verbs import VERBS
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.state_paths import STATE_DB
from tests.cli_controller import controller
from tests.golden.cli.cli_world import build
from tests.unit.cli.test_cli_help import parser_of

CODES = {0, 1, 2, 3, 4, 5, 124}
LINES_OF_EACH_VERB = 40
LINES_OF_SLOW_VERBS = 3  # they try this machine, ask providers, or pack much
# What waits for the world, and `up`, which is a world of its own.
BLOCKING = {"--watch", "--follow", "--wait", "--detach", "--interactive", "--stdin", "--help"}
NO_FILE = "there/is/none.yaml"
KEYS = ("job/embed-docs", "job/hostile", "sweep/lr", "vol/ckpt", "tr/pretrain", "secret/x", "jobs")
NASTY = (
    "", " ", "-", "--", "---", "=", "/", "//", "job/", "/x", "a/b/c", "all", "0", "-1", "1e999",
    "nan", "9" * 40, "1-0", "0-99999999999", "3,,4", "x" * 5000, "a=b", "=b", "a=", ".a", "{.a",
    "{.items[*].metadata.name}", "[", "\x1b]0;owned\x07", "\u202ereversed", "\n", "\t", "%s", "{}",
    "{0}", "select", "select * from tasks", "../..", "/etc/passwd", "/dev/null", "..", "~nobody/x",
    "\udcff", "ключ", "5m", "25USD", "json", "jsonpath={", "custom-columns=X:.a[",
    "csv", "-o", "-f", "--all", "volume/ckpt:/", "volume/ckpt:../../etc", "job/embed-docs:/x:y",
    NO_FILE, "good.yaml", "binary.yaml", "folder",
)  # fmt: skip
REPLIES = (
    b"", b"\n", b"[]\n", b"null\n", b"nonsense\n", b"\xff\xfe\n", b'{"ok": true}\n',
    b'{"ok": true, "results": [1, {"key": 3}], "warnings": 7}\n', b'{"ok": false}\n',
    b'{"ok": false, "errors": [{"a": 1}], "code": "x", "hint": 7}\n',
    b'{"ok": true, "results": [{"key": "x", "outcome": null, "message": 3}]}\n',
)  # fmt: skip
GOOD = """
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: x}
spec: {template: {script: "true"}}
"""


def told(words: list[str], *, terminal: bool = False) -> str:
    """What a person sees of it. Fails when it is a bug."""
    raw, talk = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", newline="")
    code = run_guarded(
        words, Screen(out, talk, out_is_terminal=terminal, talk_is_terminal=terminal)
    )
    out.flush()
    message = talk.getvalue() + raw.getvalue().decode("utf-8", "replace")
    assert "has a bug" not in message, f"{words} said {message}{_traceback(message)}"
    assert "Traceback" not in talk.getvalue(), words
    assert code in CODES, f"{words} ended with {code}"
    if code not in (0, 1):  # 1 is also how `diff` and `doctor` say what they found
        assert "error: " in talk.getvalue(), f"{words} ended with {code} and said {message}"
    return message


def _traceback(said: str) -> str:
    """The file that the line of a bug names."""
    return Path(said.partition("details are in `")[2].partition("`")[0]).read_text(encoding="utf-8")


def lines_of(verb: str, seed: int) -> Iterator[list[str]]:
    """Lines of words for a verb, half of them near to sense."""
    dice = random.Random(f"{verb} {seed}")
    arguments = [it for it in parser_of(verb).arguments() if not BLOCKING & set(it.option_strings)]
    slow = verb in ("bundle", "doctor", "orphans")
    for _ in range(LINES_OF_SLOW_VERBS if slow else LINES_OF_EACH_VERB):
        words = [verb]
        for it in arguments:
            words += _words(it, dice)
        if dice.random() < 0.3:
            words.insert(dice.randrange(1, len(words) + 1), dice.choice(NASTY))
        yield words


def _words(argument: Action, dice: random.Random) -> list[str]:
    value = dice.choice(KEYS if dice.random() < 0.4 else NASTY)
    if not argument.option_strings:
        return [] if dice.random() < 0.2 else [value]
    if dice.random() < 0.7:
        return []
    name = dice.choice(argument.option_strings)
    if argument.nargs == 0:
        return [name]
    if argument.dest == "output" and dice.random() < 0.7:
        return [name, dice.choice(str(argument.metavar).split("|"))]
    return [name, value]


def blocks(words: list[str]) -> bool:
    """Returns whether these words would wait for something that does not come."""
    verb = words[0]
    short = {"get": {"-w"}, "logs": {"-f"}, "exec": {"-i", "-t", "-it"}, "query": {"-w"}}
    return verb in ("up", "wait", "mcp", "serve") or bool(short.get(verb, set()) & set(words))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fuzz") / "home"
    build(place)
    return place


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory to be in, with files that are good and bad."""
    (tmp_path / "cwd" / "folder").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "cwd")
    Path("good.yaml").write_text(GOOD, encoding="utf-8")
    Path("binary.yaml").write_bytes(bytes(range(256)) * 4)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\x00")))
    return tmp_path


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_answers_words_without_sense(
    verb: str, world: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = here / "home"
    shutil.copytree(world, home)
    monkeypatch.setenv("FLEETCTL_HOME", str(home))
    replies = iter(REPLIES * 1000)
    with controller(home, lambda _: next(replies)):
        for terminal in (False, True):
            for words in lines_of(verb, seed=int(terminal)):
                if not blocks(words):
                    told(words, terminal=terminal)


def _truncated(state: Path) -> None:
    state.write_bytes(state.read_bytes()[: state.stat().st_size // 2])


def _noise(state: Path) -> None:
    state.write_bytes(random.Random(3).randbytes(50_000))


def _holes(state: Path) -> None:
    data = bytearray(state.read_bytes())
    for at in range(5000, len(data), 3000):
        data[at : at + 200] = b"\0" * 200
    state.write_bytes(data)


def _empty(state: Path) -> None:
    state.write_bytes(b"")


def _directory(state: Path) -> None:
    state.unlink()
    state.mkdir()


def _loop(state: Path) -> None:
    state.unlink()
    state.symlink_to(state)


def _gone(state: Path) -> None:
    state.unlink()


def _foreign(state: Path) -> None:
    state.unlink()
    with sqlite3.connect(state) as other:
        other.execute("CREATE TABLE birds (name TEXT)")


def _newer(state: Path) -> None:
    with sqlite3.connect(state) as store:
        store.execute("PRAGMA user_version = 99")


def _without_tables(state: Path) -> None:
    with sqlite3.connect(state) as store:
        for table in ("runs", "results"):
            store.execute(f"DROP TABLE IF EXISTS {table}")


def _odd_values(state: Path) -> None:
    """As an older or a wrong fleetctl may have stored them: documents of the wrong form."""
    with sqlite3.connect(state) as store:
        odd = ["[]", "3", "null", "{", '{"phase": 3, "active": "x", "where": []}', '""', "NaN"]
        for table, column in (("specs", "spec"), ("resources", "status"), ("resources", "labels")):
            for row, (number,) in enumerate(store.execute(f"SELECT rowid FROM {table}").fetchall()):
                values = (odd[(row + len(column)) % len(odd)], number)
                store.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", values)


BROKEN: tuple[Callable[[Path], None], ...] = (
    _truncated, _noise, _holes, _empty, _directory, _loop, _gone, _foreign, _newer,
    _without_tables, _odd_values,
)  # fmt: skip
READS = (
    ["get", "all"], ["get", "jobs", "-o", "wide"], ["get", "sweeps"], ["get", "all", "-o", "json"],
    ["get", "tasks", "job/resize"], ["get", "attempts", "job/resize"], ["describe", "job/resize"],
    ["describe", "sweep/lr"], ["describe", "vol/ckpt"], ["logs", "job/resize"], ["events"],
    ["results", "job/resize"], ["top", "jobs"], ["top", "providers"], ["cost"], ["status"],
    ["query", "select * from tasks"], ["ls", "vol/ckpt"], ["get", "jobs", "-o", "csv"],
    ["get", "jobs", "--sort-by", ".status.cost"], ["get", "job/resize", "-o", "yaml"],
    ["wait", "job/resize", "--timeout", "0"], ["__complete", "get", "job/"],
    ["get", "volumes"], ["get", "secrets"], ["get", "functions"], ["get", "budgets"],
    ["describe", "job/embed-docs"], ["describe", "job/hostile"], ["describe", "tr/pretrain"],
)  # fmt: skip


@pytest.mark.parametrize("harm", BROKEN, ids=lambda it: it.__name__.strip("_"))
def test_a_broken_store_is_a_line_for_every_verb_that_reads(
    harm: Callable[[Path], None], world: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = here / "home"
    shutil.copytree(world, home)
    monkeypatch.setenv("FLEETCTL_HOME", str(home))
    harm(home / STATE_DB)
    for words in READS:
        told(words)


@pytest.mark.parametrize("kind", ["file", "gone", "empty", "loop", "below a file", "too long"])
def test_a_state_directory_that_is_none_is_a_line(
    kind: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = here / "home"
    if kind == "file":
        home.write_text("x")
    elif kind == "empty":
        home.mkdir()
    elif kind == "loop":
        home.symlink_to(home)
    elif kind == "below a file":
        home.write_text("x")
        home /= "state"
    elif kind == "too long":
        home /= "x" * 300
    monkeypatch.setenv("FLEETCTL_HOME", str(home))
    for words in [*READS, ["doctor"]]:
        told(words)


def test_a_controller_that_answers_nonsense_is_a_line(
    here: Path, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = here / "home"
    shutil.copytree(world, home)
    monkeypatch.setenv("FLEETCTL_HOME", str(home))
    for reply in REPLIES:
        with controller(home, lambda _, reply=reply: reply):  # type: ignore[misc]
            for words in (
                ["apply", "-f", "good.yaml"], ["apply", "-f", "good.yaml", "--dry-run"],
                ["plan", "-f", "good.yaml"], ["diff", "-f", "good.yaml"], ["status"],
                ["suspend", "job/resize"], ["retry", "job/resize", "--failed"],
                ["set", "job/resize", "parallelism=3"], ["scale", "job/resize", "3"],
                ["delete", "job/resize", "--timeout", "0"],
            ):  # fmt: skip
                told(words)
