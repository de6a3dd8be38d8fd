"""The supervisor's side of journals and results."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from fleetctl.guest.journal import digest, record, results
from fleetctl.providers.local.supervisor.run.sandbox import BeginLog
from fleetctl.providers.rundir.run_journal import parse_journal

ENDED = {"at": 2.0, "started_at": 1.0, "ok": True, "reason": "Completed", "message": "", "exit": 0}


@pytest.fixture
def directory(tmp_path: Path) -> int:
    return os.open(tmp_path, os.O_RDONLY)


def test_what_the_supervisor_writes_is_what_the_provider_reads(
    directory: int, tmp_path: Path
) -> None:
    journal = record.Journal(directory, "run")
    journal.begin(1.0, '"keeper":"k/1","note":"process"')
    assert journal.metric(3, {"loss": 0.5, "acc": 1}, 1.5)
    assert journal.metric(4, {"loss": 0.25}, 1.6)
    text, problem, changed = results.judge_result({"b": "ü\n", "a": [1, None]})
    assert (problem, changed) == ("", "")
    journal.end(digest.result_line(text), {**ENDED, "infra": False, "note": "n"}, sandbox_open=True)
    seen = parse_journal((tmp_path / "run.jsonl").read_bytes())
    assert (seen.started_at_s, seen.supervisor, seen.note) == (1.0, "k/1", "process")
    assert [(one.seq, one.value) for one in seen.metrics] == [(0, 0.5), (1, 1.0), (2, 0.25)]
    assert seen.result == '{"a":[1,null],"b":"ü\\n"}'
    assert seen.ending is not None
    assert (seen.ending.ok, seen.ending.sandbox_open, seen.ending.note) == (True, True, "n")
    assert seen.garbage_lines == 0


def test_a_journal_is_made_once(directory: int) -> None:
    record.Journal(directory, "run").close()
    with pytest.raises(FileExistsError):
        record.Journal(directory, "run")


def test_a_full_disk_costs_a_torn_line_and_nothing_else(
    directory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = record.Journal(directory, "run")
    journal.begin(1.0, '"keeper":"k/1","note":""')
    write = os.write
    room = [20, 0]

    def full(handle: int, data: bytes) -> int:
        if not room:
            return write(handle, data)
        left = room.pop(0)
        if not left:
            raise OSError(errno.ENOSPC, "no space left on device")
        return write(handle, data[:left])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="no space"):
        journal.end("", ENDED, sandbox_open=False)
    journal.end("", ENDED, sandbox_open=False)
    seen = parse_journal((tmp_path / "run.jsonl").read_bytes())
    assert seen.ending is not None
    assert seen.garbage_lines == 1


@pytest.mark.parametrize(
    "values",
    [
        {"a": "1"},
        {"a": True},
        {"a": 10**400},
        {},
        [1],
        None,
    ],
)
def test_a_report_that_is_none_leaves_no_line(
    directory: int, tmp_path: Path, values: object
) -> None:
    journal = record.Journal(directory, "run")
    assert not journal.metric(1, values, 1.0)
    journal.close()
    assert (tmp_path / "run.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff", "UTF-8"),
        (b'{"a": "\\ud800"}', "UTF-8"),
        (b'{"a": 1', "not JSON"),
        (b"[" * 100_000, "deep"),
        (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
        (b"[1]", "list"),
        (b'"x"', "string"),
        (b"null", "null"),
        (b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", "deep"),
        (b'{"a": "' + b"x" * results.RESULT_BYTES_MAX + b'"}', "volume"),
        (b"", "is empty"),
        (b"loss: 3", "begins `loss: 3`"),
    ],
)
def test_a_bad_result_is_told_apart(data: bytes, says: str) -> None:
    value, problem = results.parse_result(data)
    text, problem, _ = ("", problem, "") if problem else results.judge_result(value)
    assert text == ""
    assert says in problem


def test_a_result_is_kept_in_canonical_form() -> None:
    value, _ = results.parse_result(b' {"b" : 1.50, "a": "\\u00fc"} ')
    assert results.judge_result(value) == ('{"a":"ü","b":1.5}', "", "")
    assert json.loads(results.judge_result(value)[0]) == value


def test_names_of_an_earlier_boot_are_remembered_and_those_of_this_one_are_not_lost(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "begun")
    BeginLog(path, "boot-1").note(["run-1", "run-2"])
    again = BeginLog(path, "boot-1")
    assert not again.was_before("run-1")
    again.note(["run-3"])
    later = BeginLog(path, "boot-2")
    assert all(later.was_before(name) for name in ("run-1", "run-2", "run-3"))
    later.note(["run-4"])
    assert not later.was_before("run-4")
    assert BeginLog(path, "boot-3").was_before("run-4")


def test_names_that_a_disk_takes_and_does_not_keep_are_refused() -> None:
    names = BeginLog(os.devnull, "boot-1")  # it takes every byte, and there is nothing to sync
    with pytest.raises(OSError, match="Invalid argument"):
        names.note(["run-1"])
