"""The mirror of a remote run: the same files, however its stream was cut, dropped and repeated."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.guest.journal.masking import Masking
from fleetctl.providers.remote.runs.run_mirror import (
    EOF,
    LOST,
    UNBEGUN,
    FedFrames,
    GarbledFrames,
    RunMirror,
)
from fleetctl.providers.rundir.run_log_reader import RunLogReader
from tests.unit.providers.remote import frames

METRIC = frames.line({"e": "metric", "seq": 0, "step": 0, "at": 1.5, "values": {"loss": 0.5}})
JOURNAL = frames.started() + METRIC * 3 + frames.ended()


def files(runs: Path) -> dict[str, bytes]:
    """Journals and logs; when their lines came is in files beside them."""
    kept = (path for path in runs.iterdir() if path.suffix != ".times")
    return {path.name: path.read_bytes() for path in kept}


@given(
    log=st.binary(max_size=120),
    cuts=st.lists(st.integers(1, 400), max_size=6),
    chunk=st.integers(1, 50),
    piece=st.integers(1, 30),
    reopens=st.booleans(),
)
def test_any_cut_and_repeated_stream_gives_the_same_files(
    log: bytes, cuts: list[int], chunk: int, piece: int, reopens: bool
) -> None:
    """cuts: after how many bytes each stream drops; the last one comes to its end."""
    with tempfile.TemporaryDirectory() as directory:
        runs = Path(directory)
        mirror = RunMirror(runs, "run-0", log_bytes_max=1 << 20)
        for cut in [*cuts, 1 << 20]:
            if reopens:
                mirror = RunMirror(runs, "run-0", log_bytes_max=1 << 20)
            mirror.restart()
            data = frames.stream(JOURNAL, log, mirror.journal_at, mirror.log_at, piece=piece)[:cut]
            fed = [mirror.feed(data[at : at + chunk]) for at in range(0, len(data), chunk)]
        assert fed[-1].end == EOF
        assert files(runs) == {"run-0.jsonl": JOURNAL} | ({"run-0.log": log} if log else {})
        assert (mirror.journal_at, mirror.log_at) == (len(JOURNAL), len(log))


@given(log=st.binary(min_size=1, max_size=300), piece=st.integers(1, 40), twice=st.booleans())
def test_a_capped_log_keeps_its_first_part_and_its_newest_at_their_offsets(
    log: bytes, piece: int, twice: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        mirror = RunMirror(Path(directory), "run-0", log_bytes_max=80)
        for at in range(0, len(log), piece):
            for _ in range(1 + twice):
                mirror.feed(frames.output(at, log[at : at + piece]))
        kept = files(Path(directory))
        for name, data in kept.items():
            start = int(name.split(".")[1]) if name.count(".") == 2 else 0
            assert data == log[start : start + 20]
        assert len(kept) == min(4, -(-len(log) // 20))
        assert "run-0.log" in kept


def test_two_controllers_that_follow_one_run_write_it_once(tmp_path: Path) -> None:
    both = (RunMirror(tmp_path, "run-0"), RunMirror(tmp_path, "run-0"))
    data = frames.stream(JOURNAL, b"some words of output")
    for at in range(0, len(data), 31):
        for mirror in both:
            mirror.feed(data[at : at + 31])
    assert files(tmp_path) == {"run-0.jsonl": JOURNAL, "run-0.log": b"some words of output"}


def test_a_line_that_a_crash_tore_is_cut_off_and_comes_again(tmp_path: Path) -> None:
    (tmp_path / "run-0.jsonl").write_bytes(frames.started() + b'{"e":"ended","at":' + b"1" * 90_000)
    mirror = RunMirror(tmp_path, "run-0")
    assert mirror.journal_at == len(frames.started())
    mirror.feed(frames.stream(JOURNAL, b"", mirror.journal_at))
    assert (tmp_path / "run-0.jsonl").read_bytes() == JOURNAL
    (tmp_path / "run-1.jsonl").write_bytes(b"\0" * 50)
    assert RunMirror(tmp_path, "run-1").journal_at == 0
    assert (tmp_path / "run-1.jsonl").read_bytes() == b""


def test_output_that_the_guest_dropped_leaves_a_hole_that_readers_see(tmp_path: Path) -> None:
    mirror = RunMirror(tmp_path, "run-0", log_bytes_max=40)
    mirror.feed(frames.output(0, b"0123456789"))
    mirror.feed(frames.output(25, b"fresh"))
    reader = RunLogReader(tmp_path, "run-0")
    assert reader.read(0) == (b"0123456789", 10)
    assert reader.read(10) == (b"\n[fleetctl: 15 bytes of output were dropped here]\n", 25)
    assert reader.read(25) == (b"fresh", 30)
    assert RunMirror(tmp_path, "run-0", log_bytes_max=40).log_at == 30


@pytest.mark.parametrize(
    ("frame", "fed"),
    [
        (b'{"e":"alive"}\n', FedFrames()),
        (frames.EOF, FedFrames(end=EOF)),
        (b'{"e":"lost","message":"killed"}\n', FedFrames(end=LOST, message="killed")),
        (b'{"e":"unbegun"}\n', FedFrames(end=UNBEGUN)),
        (METRIC, FedFrames(journal=True)),
        (frames.output(0, b"x"), FedFrames(log=True)),
        (frames.output(0, b""), FedFrames()),
        (b'{"e":"log","at":0', FedFrames()),
        (METRIC + frames.EOF, FedFrames(journal=True, end=EOF)),
    ],
)
def test_each_frame_says_what_changed(tmp_path: Path, frame: bytes, fed: FedFrames) -> None:
    assert RunMirror(tmp_path, "run-0").feed(frame) == fed


def test_what_the_guest_did_not_write_is_part_of_the_journal_and_counts_in_its_offset(
    tmp_path: Path,
) -> None:
    """The offset must stay that of the guest's file, whatever a future guest adds to it."""
    mirror = RunMirror(tmp_path, "run-0")
    mirror.feed(b'{"e":"news","a":1}\nnoise\n\n')
    assert (tmp_path / "run-0.jsonl").read_bytes() == b'{"e":"news","a":1}\nnoise\n\n'


@pytest.mark.parametrize(
    "frame",
    [
        b'{"e":"log"}\n',
        b'{"e":"log","at":"x","b64":""}\n',
        b'{"e":"log","at":0,"b64":"!!"}\n',
        b'{"e":"log","at":0,"hex":"zz"}\n',
        b'{"e":"log",\n',
        b'{"e":"lost"\n',
    ],
)
def test_a_garbled_frame_is_refused_and_the_next_stream_mends_it(
    tmp_path: Path, frame: bytes
) -> None:
    mirror = RunMirror(tmp_path, "run-0")
    mirror.feed(frames.output(0, b"ab"))
    with pytest.raises(GarbledFrames):
        mirror.feed(METRIC + frame)
    mirror.restart()
    mirror.feed(frames.stream(METRIC, b"abcd", mirror.journal_at, mirror.log_at))
    assert files(tmp_path) == {"run-0.jsonl": METRIC, "run-0.log": b"abcd"}


def test_a_frame_without_an_end_is_not_kept_in_memory_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.providers.remote.runs.run_mirror.FRAME_BYTES_MAX", 1000)
    mirror = RunMirror(tmp_path, "run-0")
    with pytest.raises(GarbledFrames, match="1000 bytes"):
        for _ in range(100):
            mirror.feed(b"x" * 100)


VALUE = "hunter2-canary"


@given(
    log=st.lists(
        st.sampled_from([VALUE, "hunter2-", "x", "\n", "ry", "hunter2-hunter2"]), max_size=12
    ),
    cuts=st.lists(st.integers(1, 400), max_size=4),
    piece=st.integers(1, 30),
    key=st.sampled_from(["b64", "hex"]),
)
def test_values_become_stars_at_the_offsets_of_the_sandbox(
    log: list[str], cuts: list[int], piece: int, key: str
) -> None:
    """As a guest sends them that cannot take them out: in its log, its result and its message."""
    text = "".join(log).encode()
    raw = json.dumps({"key": VALUE, "n": 1}).encode()
    coded = base64.b64encode(raw).decode() if key == "b64" else raw.hex()
    result = frames.line({"e": "result", key: coded})
    journal = frames.started() + result + frames.ended(ok=False, reason=f"of {VALUE}")
    with tempfile.TemporaryDirectory() as directory:
        runs, stars = Path(directory), b"*" * len(VALUE)
        mirror = RunMirror(runs, "run-0", masking=Masking([VALUE]))
        for cut in [*cuts, 1 << 20]:
            mirror.restart()
            data = frames.stream(journal, text, mirror.journal_at, mirror.log_at, piece=piece)
            mirror.feed(data[:cut])
        kept = files(runs)
        assert kept.get("run-0.log", b"") == text.replace(VALUE.encode(), stars)
        assert (
            len(kept["run-0.jsonl"]) == len(journal) and VALUE.encode() not in kept["run-0.jsonl"]
        )
        [found] = [it for it in kept["run-0.jsonl"].splitlines() if b'"result"' in it]
        held = json.loads(found)[key]
        plain = base64.b64decode(held) if key == "b64" else bytes.fromhex(held)
        assert json.loads(plain) == {"key": stars.decode(), "n": 1}
