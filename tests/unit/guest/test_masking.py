"""Values of secrets in what a run prints and reports, cut anywhere."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from fleetctl.guest.journal.digest import result_line
from fleetctl.guest.journal.logfile import LogFile
from fleetctl.guest.journal.masking import MASK, MaskedStream, Masking
from fleetctl.guest.journal.record import Journal, masking_of
from fleetctl.guest.journal.results import judge_result

VALUE = 'hunter2-"canary"/+\\é'
PEM = "-----BEGIN KEY-----\nAAAABBBBCCCCDDDD\nEEEEFFFFGGGG\n-----END KEY-----\n"


def masked(text: str, *values: str) -> str:
    return Masking(values or (VALUE,)).data(text.encode()).decode()


@pytest.mark.parametrize(
    "printed",
    [
        *(VALUE, repr(VALUE), json.dumps(VALUE), json.dumps(VALUE, ensure_ascii=False)),
        "https://a/?k=hunter2-%22canary%22%2F%2B%5C%C3%A9",
    ],
)
def test_a_value_is_found_as_programs_print_it(printed: str) -> None:
    text = masked(f"before {printed} after")
    assert "canary" not in text and text.startswith("before ") and text.endswith(" after")


def test_lines_of_a_key_are_found_alone_and_its_frame_stays() -> None:
    text = masked("at EEEEFFFFGGGG\n-----BEGIN KEY-----\nAAAABBBBCCCCDDDD\r\n", PEM)
    assert text == f"at {MASK}\n-----BEGIN KEY-----\n{MASK}\r\n"


def test_short_values_and_what_is_none_stay() -> None:
    assert masked("true 12345 production", "true", "12345", "") == "true 12345 production"


@pytest.mark.parametrize("seed", range(300))
def test_output_in_pieces_cut_anywhere_shows_no_value_and_loses_nothing(seed: int) -> None:
    draw = random.Random(seed)
    letters = "ab" if seed % 2 else "abcdef"
    values = ["".join(draw.choices(letters, k=draw.randint(6, 12))) for _ in range(3)]
    text = "".join(
        draw.choice(values) if draw.random() < 0.3 else draw.choice([*letters, "-", "\n"])
        for _ in range(60)
    )
    stream, out, data = MaskedStream(Masking(values)), b"", text.encode()
    while data:
        size = draw.randint(1, 9)
        out += stream.feed(data[:size])
        data = data[size:]
    out += stream.end()
    assert not any(value.encode() in out for value in values)
    assert out.decode() == Masking(values).text(text)
    if not any(value in text for value in values):
        assert out == text.encode()


def test_a_log_and_a_journal_hold_no_value(tmp_path: Path) -> None:
    runs = os.open(tmp_path, os.O_RDONLY)
    masking = masking_of({"masked": ["KEY", "OTHER"]}, {"KEY": VALUE, "PLAIN": "some-text"})
    assert masking is not None
    log, journal = LogFile(runs, "r", 1 << 20, masking), Journal(runs, "r", masking)
    raw = f"key {VALUE} and some-text\n".encode()
    for at in range(len(raw)):
        log.write(raw[at : at + 1])
    log.close()
    assert (tmp_path / "r.log").read_text() == f"key {MASK} and some-text\n"
    journal.begin(1.0, '"keeper":""')
    journal.metric(1, {"loss": 0.5, f"of {VALUE}": 1.0}, 2.0)
    journal.remark(VALUE)
    cut = ("x" * 4090 + VALUE)[:4096]
    line = result_line(judge_result({"key": VALUE, VALUE: [VALUE, 7]})[0])
    journal.end(line, {"ok": False, "message": cut, "reason": "Error"}, sandbox_open=False)
    text = (tmp_path / "r.jsonl").read_text()
    assert "canary" not in text and "hunter2" not in text and "some-text" not in text
    events = [json.loads(it) for it in text.splitlines()]
    [result] = [it for it in events if it["e"] == "result"]
    assert json.loads(result["text"]) == {"key": MASK, MASK: [MASK, 7]}
    assert result_line(result["text"]) == text.splitlines(keepends=True)[-2]
    assert events[1]["values"] == {"loss": 0.5, f"of {MASK}": 1.0}


def test_a_run_without_secrets_has_no_masking() -> None:
    assert masking_of({"masked": ["KEY"]}, {}) is None
    assert masking_of({}, {"KEY": VALUE}) is None
