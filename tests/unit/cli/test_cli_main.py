"""The entry point: errors become a line and an exit code, whatever happens; never a traceback."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from fleetctl.cli import main as entry
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.system.version import VERSION
from fleetctl.common.errors import Conflict, FleetctlError, NotFound, Refused, UsageError
from fleetctl.common.state_paths import STATE_DB
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.stores.base import EventRow
from fleetctl.stores.sqlite.store import SqliteStore, open_store

ROOT = Path(__file__).parents[3]


class FixedClock:
    def now_s(self) -> float:
        return 1_800_000_000.0


def fleetctl(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def failing(error: BaseException) -> Callable[..., int]:
    def dispatch(_words: list[str], _screen: Screen) -> int:
        raise error

    return dispatch


def filled(home: Path, objects: int) -> SqliteStore:
    store = open_store(home, FixedClock())
    with store.transaction():
        for number in range(objects):
            name = f"job-{number}"
            row = Resource(name, "BatchJob", name, 1, 0, "{}", "", {}, {}, 5.0)
            store.resources.put(row, expected_version=None)
    return store


def process(home: Path, *words: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-m", "fleetctl.cli.main", *words],
        env={**os.environ, "FLEETCTL_HOME": str(home)},
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def open_files(pid: int) -> set[str]:
    found = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed again
            found.add(str(one.readlink()))
    return found


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FleetctlError("it failed"), 1),
        (UsageError("it failed"), 2),
        (Refused("it failed"), 3),
        (NotFound("it failed"), 4),
        (Conflict("it failed"), 5),
    ],
)
def test_every_sort_of_error_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: FleetctlError, code: int
) -> None:
    error.hint = "do this"
    monkeypatch.setattr(entry, "dispatch_verb", failing(error))
    assert fleetctl("get") == (code, "", "error: it failed\nhint: do this\n")


def test_a_bug_of_ours_is_a_line_and_a_hint_and_its_traceback_a_private_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(entry, "dispatch_verb", failing(ZeroDivisionError("boom")))
    code, out, talk = fleetctl("get")
    assert (code, out) == (1, "")
    assert talk.count("error: ") == 1 and talk.count("\n") == 2  # and how to report it
    assert "fleetctl has a bug: ZeroDivisionError" in talk
    (log,) = (tmp_path / "home" / "crashes").iterdir()
    assert str(log) in talk
    assert "ZeroDivisionError: boom" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


def test_a_home_that_cannot_be_written_sends_the_traceback_to_the_temp_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "home").write_text("a file is in the way")
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(entry, "dispatch_verb", failing(KeyError("x")))
    _, _, talk = fleetctl("get")
    (log,) = tmp_path.glob("crash-*.log")
    assert str(log) in talk


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    filled(tmp_path, 3000).close()
    running = process(tmp_path, "get", "jobs", "-o", "json", stdout=subprocess.PIPE)
    assert running.stdout is not None and running.stderr is not None
    running.stdout.readline()
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait() == 0


def test_a_full_disk_is_told_in_a_line(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    with open("/dev/full", "w") as full:
        running = process(tmp_path, "get", "jobs", stdout=full)
        _, told = running.communicate()
    assert running.returncode == 1
    assert told == "error: the output cannot be written: no space left on device\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_streams_that_were_closed_before_we_began_are_no_bug(tmp_path: Path, closed: str) -> None:
    filled(tmp_path, 1).close()
    command = f'"$0" -m fleetctl.cli.main get jobs -o name {closed}'
    env = {**os.environ, "FLEETCTL_HOME": str(tmp_path)}
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ("job-0" in done.stdout) is (closed == "2>&-")


def test_an_interrupted_watch_ends_without_a_word(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    running = process(tmp_path, "get", "jobs", "-w", stdout=subprocess.PIPE)
    assert running.stdout is not None
    running.stdout.readline()
    running.send_signal(signal.SIGINT)
    _, told = running.communicate()
    assert (running.returncode, told) == (130, "")


def test_an_interrupted_query_did_not_take_too_long(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    endless = "with recursive t(x) as (select 1 union all select x + 1 from t) "
    sql = f"select 1 union all select max(x) from ({endless} select x from t)"
    running = process(tmp_path, "query", sql, "-o", "csv", "--timeout", "1h")
    # Before it has its store, an interrupt may be Python's own affair.
    while str((tmp_path / STATE_DB).resolve()) not in open_files(running.pid):
        assert running.poll() is None
        time.sleep(0.01)
    time.sleep(1.0)  # until it counts; from here on it ends with 130 in any case
    running.send_signal(signal.SIGINT)
    _, told = running.communicate()
    assert (running.returncode, told) == (130, "")


def test_an_interrupted_follow_says_that_work_goes_on_and_how_to_come_back(tmp_path: Path) -> None:
    store = filled(tmp_path, 1)  # held open: the command finds a controller and starts none
    with store.transaction():
        run = Run("r", "job-0", 0, 1, RunState.RUNNING, "local", "r", "t", "{}", "p", 5.0)
        store.runs.begin([run])
    logs = tmp_path / "local" / "jobs" / "job-0" / "runs"
    logs.mkdir(parents=True)
    (logs / "r.log").write_text("first line\n")
    running = process(tmp_path, "logs", "-f", "job/job-0", stdout=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline() == "[0/1] first line\n"
    running.send_signal(signal.SIGINT)
    _, told = running.communicate()
    store.close()
    assert running.returncode == 130
    assert told.splitlines() == [
        "detached; batchjob/job-0 goes on",
        "hint: come back: fleetctl logs batchjob/job-0 -f",
        "hint: cancel: fleetctl delete batchjob/job-0",
    ]


def test_the_version_is_that_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert declared == VERSION
    assert fleetctl("--version")[1] == fleetctl("version")[1]
    assert VERSION in fleetctl("version")[1]


def test_words_of_other_tools_lead_to_verbs_that_there_are() -> None:
    for word, hint in entry.OTHER_TOOL_VERBS.items():
        assert word not in entry.VERBS
        assert fleetctl(word) == (2, "", f"error: fleetctl has no verb `{word}`\nhint: {hint}\n")
        named = re.findall(r"fleetctl ([a-z-]+)", hint)
        assert named and set(named) <= set(entry.VERBS)


def test_watched_events_come_as_they_happen_and_once_until_their_object_is_gone(
    tmp_path: Path,
) -> None:
    store = filled(tmp_path, 1)
    with store.transaction():
        store.events.record([EventRow("job-0", 5.0, "Normal", "Created", "made")])
    running = process(tmp_path, "events", "job/job-0", "-w", "-o", "json", stdout=subprocess.PIPE)
    assert running.stdout is not None
    assert json.loads(running.stdout.readline())["message"] == "made"
    with store.transaction():
        store.events.record([EventRow("job-0", 6.0, "Warning", "Failed", "broken")])
    assert json.loads(running.stdout.readline())["message"] == "broken"
    with store.transaction():
        store.resources.delete("job-0")
    rest, told = running.communicate(timeout=60)
    assert (running.returncode, rest, told) == (0, "", "")


def test_the_package_runs_as_a_module(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fleetctl", "version"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("fleetctl ")
