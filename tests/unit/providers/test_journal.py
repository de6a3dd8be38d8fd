"""Reading journals: offsets, torn lines, garbage, and the end of a run."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fleetctl.providers.rundir.journal_runs import with_arrived_outputs
from fleetctl.providers.rundir.run_journal import RunJournal, parse_complete, parse_journal


def line(**event: Any) -> bytes:
    return (json.dumps(event) + "\n").encode()


def result(text: str) -> bytes:
    return line(e="result", sha256=sha256(text.encode()).hexdigest(), bytes=len(text), text=text)


STARTED = line(e="started", at=10.0, keeper="k/1", note="process")
METRICS = line(e="metric", seq=0, step=3, at=11.0, values={"loss": 0.5, "acc": 1})
ENDED = line(
    e="ended", at=12.0, started_at=10.0, ok=True, reason="Completed", exit=0, open=True, note="n"
)
WHOLE = STARTED + METRICS + result('{"a":1}') + ENDED


def test_a_whole_journal_tells_everything() -> None:
    seen = parse_journal(WHOLE)
    assert (seen.started_at_s, seen.supervisor, seen.note) == (10.0, "k/1", "process")
    assert [(one.seq, one.step, one.name, one.value) for one in seen.metrics] == [
        (0, 3, "loss", 0.5),
        (1, 3, "acc", 1.0),
    ]
    assert seen.result == '{"a":1}'
    assert seen.ending is not None
    assert (seen.ending.ok, seen.ending.sandbox_open, seen.ending.exit_code) == (True, True, 0)
    assert seen.offset == len(WHOLE)
    assert seen.garbage_lines == 0


def test_a_torn_last_line_waits_until_it_is_complete() -> None:
    seen = parse_journal(STARTED + METRICS[:-5])
    assert seen.metrics == ()
    assert seen.offset == len(STARTED)
    again = parse_journal(METRICS, seen.offset)
    assert len(again.metrics) == 2
    assert again.offset == len(STARTED + METRICS)


def test_what_makes_no_sense_is_counted_and_skipped() -> None:
    garbage = b"\xff\xfe\n[1]\n" + line(e="unknown") + line(e="ended", ok=True) + line(e="metric")
    seen = parse_journal(STARTED + garbage + METRICS)
    assert seen.garbage_lines == 5
    assert seen.ending is None
    assert len(seen.metrics) == 2


def test_a_result_with_a_wrong_checksum_is_none() -> None:
    seen = parse_journal(line(e="result", sha256="0" * 64, text='{"a":1}') + ENDED)
    assert seen.result is None
    assert seen.garbage_lines == 1


def test_a_sandbox_that_was_left_open_can_be_closed_later() -> None:
    seen = parse_journal(WHOLE + line(e="closed", at=20.0))
    assert seen.ending is not None
    assert not seen.ending.sandbox_open


def test_lines_are_valid_one_by_one() -> None:
    halves = b'{"e": "remark",\n"message": "x"}\n' + b'{"e": "remark", "message": "\n"}\n'
    several = line(e="remark", message="a").strip() + b"," + line(e="remark", message="b")
    seen = parse_journal(halves + several + METRICS)
    assert seen.garbage_lines == 5
    assert seen.remarks == ()
    assert len(seen.metrics) == 2


@given(st.binary(max_size=300))
def test_no_bytes_raise(data: bytes) -> None:
    assert parse_journal(data).offset <= len(data)


@given(st.lists(st.integers(0, len(WHOLE)), max_size=5))
def test_reading_in_pieces_tells_the_same_as_reading_at_once(cuts: list[int]) -> None:
    offset, parts = 0, []
    for cut in [*sorted(cuts), len(WHOLE)]:
        piece = parse_journal(WHOLE[offset:cut], offset)
        offset = piece.offset
        parts.append(piece)
    whole = parse_journal(WHOLE)
    assert offset == whole.offset
    assert tuple(one for part in parts for one in part.metrics) == whole.metrics
    assert [part.result for part in parts if part.result] == [whole.result]
    assert [part.ending for part in parts if part.ending] == [whole.ending]
    assert isinstance(parts[-1], RunJournal)


def test_an_end_whose_outputs_did_not_arrive_is_no_success(tmp_path: Path) -> None:
    ended = {"e": "ended", "at": 2.0, "started_at": 1.0, "ok": True, "infra": False, "outputs": 2}
    rest = {"reason": "Completed", "message": "", "exit": 0, "open": False, "note": ""}
    seen = parse_complete(json.dumps({**ended, **rest}).encode() + b"\n")
    lost = with_arrived_outputs(seen, tmp_path, "run-0").ending
    assert lost is not None
    assert (lost.ok, lost.infrastructure, lost.reason) == (False, True, "OutputsNotKept")
    assert lost.message.startswith("2 outputs of it did not arrive")
    (tmp_path / "run-0.outputs").touch()
    assert with_arrived_outputs(seen, tmp_path, "run-0") is seen
