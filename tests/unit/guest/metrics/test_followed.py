"""What a program prints or writes of metrics without knowing us becomes metrics of its run."""

from __future__ import annotations

import fnmatch
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.guest.journal.record import Journal
from fleetctl.guest.metrics import cpulimit, files
from fleetctl.guest.metrics.followed import Followed
from fleetctl.providers.rundir.run_journal import parse_journal
from tests.unit.guest.metrics.event_writer import (
    event,
    field,
    framed,
    masked,
    simple,
    tensor,
    value,
    write_events,
)

# What tensorboardX 2.6 wrote: a header, a scalar at step 3, and a text.
WRITTEN = (
    "1800000000000000a37f4b2209bb16a87f3cc1da411a0d627261696e2e4576656e743a3298c823e2"
    "1e00000000000000d9dc123209a71fa87f3cc1da4110032a110a0f0a0876616c2f6c6f7373150000003f170f5e56"
    "3d000000000000006049f1ec09a72fa87f3cc1da4110012a300a2e0a116e6f74652f746578745f73756d6d617279"
    "420f0807120412020801420568656c6c6f4a080a060a04746578747506f8e201"
)


class Place:
    """A directory that programs begin in, and a journal."""

    def __init__(self, top: Path) -> None:
        self.start, self.runs = top / "start", top / "runs"
        self.start.mkdir()
        self.runs.mkdir()
        self.journal = Journal(os.open(self.runs, os.O_RDONLY), "r-1")
        self.log: list[str] = []

    def follow(self, **asked: Any) -> Followed:
        whole = {"regex": None, "path": None, "metric": "loss", **asked}
        followed = Followed(whole, str(self.start), self.log.append)
        followed.begin()
        return followed

    def printed(self, regex: str, text: str) -> list[tuple[int, str, float]]:
        """What is told of all of an output."""
        followed = self.follow(**{"from": "stdout", "regex": regex})
        followed.hear(text.encode())
        followed.take(self.journal, whole=True)
        return self.told()

    def told(self) -> list[tuple[int, str, float]]:
        return [(it.step, it.name, it.value) for it in self._parsed().metrics]

    def remarks(self) -> list[str]:
        return list(self._parsed().remarks)

    def _parsed(self) -> Any:
        return parse_journal((self.runs / "r-1.jsonl").read_bytes())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


SHORT_TICK_S = 0.02  # still far more than an ordinary line takes
JSONL = {"from": "jsonl", "path": "out/metrics.jsonl"}
BOARD = {"from": "tensorboard", "path": "runs"}


# -- what it prints ----------------------------------------------------------------------------


def test_each_named_group_is_a_metric(place: Place) -> None:
    text = "epoch 1: loss 0.5, acc 50\nsaved\nepoch 2: loss 2.5e-1, acc 75\n"
    found = place.printed(r"loss (?P<loss>\S+), acc (?P<acc>\d+)", text)
    assert found == [(0, "loss", 0.5), (0, "acc", 50), (1, "loss", 0.25), (1, "acc", 75)]


def test_the_group_step_is_the_step(place: Place) -> None:
    regex = r"epoch (?P<step>\d+): loss (?P<loss>[\d.]+)"
    assert place.printed(regex, "epoch 10: loss 0.5\n") == [(10, "loss", 0.5)]


@pytest.mark.parametrize(
    "regex",
    [r"(?P<name>[\w/]+)=(?P<value>[\w.+-]+)", r"([\w/]+)=([+-]?\d*(\.\d+)?([Ee][+-]?\d+)?)"],
)
def test_names_may_be_printed_beside_their_values_as_katib_has_them(
    place: Place, regex: str
) -> None:
    found = place.printed(regex, "val/loss=0.5 acc=1\nstep=7 val/loss=0.25\n")
    assert found == [(0, "val/loss", 0.5), (0, "acc", 1), (7, "val/loss", 0.25)]


def test_progress_bars_and_a_last_line_without_its_end_are_read(place: Place) -> None:
    found = place.printed(r"loss=(?P<loss>\S+)", "10% loss=3\r20% loss=2\rloss=1")
    assert [value for _, _, value in found] == [3, 2, 1]


def test_lines_may_come_in_pieces_and_are_told_as_they_come(place: Place) -> None:
    followed = place.follow(**{"from": "stdout", "regex": r"loss=(?P<loss>\S+)"})
    followed.hear(b"loss=0.")
    assert not followed.take(place.journal)
    followed.hear(b"5\nlo")
    assert followed.take(place.journal)
    assert place.told() == [(0, "loss", 0.5)]


def test_what_is_no_number_is_said_once_with_its_line(place: Place) -> None:
    text = "start\nloss=0.5\nloss=?\nloss=n/a\n"
    assert place.printed(r"loss=(?P<loss>\S+)", text) == [(0, "loss", 0.5)]
    assert place.remarks() == [
        "line 3 of what it printed, `loss=?`: `loss` is `?`, which is not a number, and is not"
        " recorded"
    ]
    assert place.log == [
        *place.remarks(),
        "2 parts of what it printed could not be read as metrics in all",
    ]


def test_of_many_values_those_of_the_metric_are_whole_and_others_a_sample(place: Place) -> None:
    text = "".join(f"loss={it} other={-it}\n" for it in range(5000))
    told = place.printed(r"loss=(?P<loss>\S+) other=(?P<other>\S+)", text)
    assert [step for step, name, _ in told if name == "loss"] == list(range(5000))
    others = [step for step, name, _ in told if name == "other"]
    assert len(others) < 4000 and others[-1] == 4999


def test_nothing_found_is_said_of_a_run_that_ended_well(place: Place) -> None:
    followed = place.follow(**{"from": "stdout", "regex": r"loss=(?P<loss>\S+)"})
    assert followed.conclude("", {"ok": False}, place.journal) == ""
    assert place.remarks() == []
    assert followed.conclude("as it was", {"ok": True}, place.journal) == "as it was"
    assert place.remarks() == [
        "no metric was found: there was nothing to read in any line that matches"
        r" `loss=(?P<loss>\S+)`"
    ]


def test_a_line_that_takes_too_long_is_given_up_and_said_once(place: Place) -> None:
    text = ("a" * 60 + "!\n") * 2 + "x=1\n"
    assert place.printed(r"(?P<loss>(a+)+)$|x=(?P<x>\d)", text) == [(0, "x", 1)]
    first, total = place.remarks()
    assert first.startswith(f"line 1 of what it printed, `{'a' * 60}…`, is not looked at: the `reg")
    assert total == "2 lines of what it printed were not looked at"


def test_an_expression_that_takes_too_long_again_and_again_is_not_tried_any_more(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpulimit, "TICK_S", SHORT_TICK_S)
    followed = place.follow(**{"from": "stdout", "regex": r"(?P<loss>(a+)+)$|x=(?P<x>\d)"})
    begun_s, slow = time.process_time(), (b"a" * 60 + b"!\n") * 10
    for _ in range(6):
        followed.hear(slow)
    assert time.process_time() - begun_s < 60  # one line would take the age of the world
    followed.hear(b"x=1\n")
    followed.take(place.journal, whole=True)
    assert place.told() == []
    remarks = place.remarks()
    assert len(remarks) == 3
    assert remarks[1].startswith("the `regex` of `metrics` took too long for 20 lines")
    assert remarks[2] == "61 lines of what it printed were not looked at"


def test_a_slow_expression_takes_ten_ticks_of_a_look_at_the_most(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpulimit, "TICK_S", SHORT_TICK_S)
    followed = place.follow(**{"from": "stdout", "regex": r"(?P<loss>\w+)\w+\w+:"})
    begun_s = time.process_time()
    followed.hear((b"a" * 300 + b"\n") * 3000)  # a quarter of an hour
    assert time.process_time() - begun_s < 30
    followed.take(place.journal, whole=True)
    assert place.remarks()[-1].endswith("lines of what it printed were not looked at")


def test_of_a_long_line_the_beginning_is_looked_at_and_that_is_said(place: Place) -> None:
    text = "loss=1 " + "-" * 8192 + " loss=2\nloss=3\n"
    assert place.printed(r"loss=(?P<loss>\d)", text) == [(0, "loss", 1), (1, "loss", 3)]
    (remark,) = place.remarks()
    assert "more than 8,192 characters" in remark


def test_what_a_program_does_with_clocks_of_its_own_is_left_as_it_was(place: Place) -> None:
    before = signal.signal(signal.SIGPROF, signal.SIG_IGN)
    try:
        place.printed(r"loss=(?P<loss>\d)", "loss=1\n")
        assert signal.getsignal(signal.SIGPROF) == signal.SIG_IGN
        assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    finally:
        signal.signal(signal.SIGPROF, before)


# -- lines of JSON -----------------------------------------------------------------------------


def write(place: Place, text: str, *, mode: str = "a", name: str = "out/metrics.jsonl") -> Path:
    path = place.start / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as file:
        file.write(text)
    return path


def test_each_look_takes_the_lines_that_are_new(place: Place) -> None:
    followed = place.follow(**JSONL)
    assert not followed.take(place.journal)
    write(place, '{"step": 3, "loss": 0.5}\n{"loss"')
    assert followed.take(place.journal)
    assert place.told() == [(3, "loss", 0.5)]
    write(place, ': 0.25, "val": {"acc": 1}, "name": "a", "best": true}')
    assert not followed.take(place.journal)
    followed.take(place.journal, whole=True)
    assert place.told()[1:] == [(1, "loss", 0.25), (1, "val.acc", 1)]
    assert place.remarks() == []


def test_a_line_that_is_no_object_is_said_with_file_and_line(place: Place) -> None:
    followed = place.follow(**JSONL)
    write(place, '{"loss": 1}\nloss: 2\n[3]\n{"step": "x", "loss": 1}\n{"step": "7", "loss": 5}\n')
    followed.take(place.journal, whole=True)
    assert [(step, value) for step, _, value in place.told()] == [(0, 1), (7, 5)]
    assert place.remarks() == [
        "line 2 of `out/metrics.jsonl` is not recorded: `loss: 2` is not an object such as"
        ' {"step": 3, "loss": 0.5}'
    ]
    assert place.log[1:] == ["3 parts of out/metrics.jsonl could not be read as metrics in all"]


def test_a_loss_that_left_the_numbers_is_recorded_from_every_form(place: Place) -> None:
    followed = place.follow(**JSONL)
    write(place, '{"loss": NaN, "acc": 1}\n{"loss": -Infinity}\n')
    followed.take(place.journal, whole=True)
    board = place.follow(**BOARD)
    write_events(place.start / "runs", event(4, simple("loss", float("inf"))))
    board.take(place.journal, whole=True)
    text = "loss=nan\n"
    parts = [
        value for _, name, value in place.printed(r"loss=(?P<loss>\S+)", text) if name == "loss"
    ]
    assert list(map(str, parts)) == ["nan", "-inf", "inf", "nan"]
    assert place.remarks() == []


@pytest.mark.parametrize("mode", ["a", "w"])
def test_what_was_there_before_is_of_others(place: Place, mode: str) -> None:
    """The next trial in a sandbox goes on with the file, or writes it anew."""
    write(place, '{"loss": 1}\n')
    followed = place.follow(**JSONL)
    assert not followed.take(place.journal)
    path = write(place, '{"loss": 2}\n', mode=mode)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))  # clocks of files are coarse
    followed.take(place.journal, whole=True)
    assert [value for _, _, value in place.told()] == [2]


def test_a_file_that_came_with_the_source_is_of_others(place: Place) -> None:
    """A copy of the source is made after the look at what is there, and keeps its times."""
    followed = place.follow(**JSONL)
    os.utime(write(place, '{"loss": 1}\n'), (1, 1))
    assert not followed.take(place.journal)
    write(place, '{"loss": 2}\n')
    followed.take(place.journal, whole=True)
    assert [value for _, _, value in place.told()] == [2]


def test_a_file_that_is_written_anew_is_read_anew(place: Place) -> None:
    followed = place.follow(**JSONL)
    write(place, '{"loss": 1}\n{"loss": 2}\n')
    followed.take(place.journal)
    write(place, '{"loss": 3}\n', mode="w")
    followed.take(place.journal)
    assert [value for _, _, value in place.told()] == [1, 2, 3]


def test_more_than_a_look_holds_is_all_there_at_the_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "READ_BYTES_MAX", 64 * 1024)
    followed = place.follow(**JSONL)
    count = 10_000
    write(place, "".join(f'{{"step": {it}, "loss": {it}.5}}\n' for it in range(count)))
    followed.take(place.journal)
    assert 0 < len(place.told()) < count
    followed.take(place.journal, whole=True)
    assert [step for step, _, _ in place.told()] == list(range(count))


def test_a_pattern_names_files_and_a_directory_is_none(place: Place) -> None:
    followed = place.follow(**{"from": "jsonl", "path": "out/*/m*"})
    write(place, '{"loss": 1}\n', name="out/a/m.jsonl")
    write(place, '{"loss": 2}\n', name="out/b/m.jsonl")
    (place.start / "out/c/models").mkdir(parents=True)
    followed.take(place.journal, whole=True)
    assert [value for _, _, value in place.told()] == [1, 2]
    assert place.remarks() == [
        "`out/c/models` is a directory; `path` must name a file of JSON lines"
    ]


def test_files_at_any_depth_are_found_and_links_do_not_lead_round(place: Place) -> None:
    followed = place.follow(**{"from": "jsonl", "path": "**/m.jsonl"})
    for number, name in enumerate(("m.jsonl", "out/m.jsonl", "out/a/b/m.jsonl", ".git/m.jsonl")):
        write(place, f'{{"loss": {number}}}\n', name=name)
    for number in range(4):  # each doubles the ways to every file
        (place.start / f"out/round-{number}").symlink_to(place.start)
    began_s = time.process_time()
    followed.take(place.journal, whole=True)
    assert time.process_time() - began_s < 5.0
    assert sorted(value for _, _, value in place.told()) == [0, 1, 2]
    assert place.remarks() == []


@pytest.mark.parametrize("kind", ["jsonl", "tensorboard"])
def test_a_pattern_looks_through_a_bounded_number_of_files(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(files, "ENTRIES_MAX", 100)
    for number in range(90):
        (place.start / f"deep/{number}").mkdir(parents=True)
    followed = place.follow(**{"from": kind, "path": "**/m*"})
    for number in range(90):
        write(place, '{"loss": 1}\n', name=f"deep/{number}/m")
    if kind == "jsonl":
        write(place, '{"loss": 7}\n', name="m.jsonl")
    followed.take(place.journal, whole=True)
    told = " ".join(place.remarks())
    assert ("**/m*" in told, "deeper ones" in told) == (True, True)
    assert kind != "jsonl" or 7 in [value for _, _, value in place.told()]


@given(
    st.text("ab*?", max_size=12)
    | st.sampled_from(["[ab]*", "[!a]*b", "[]a]*", "[", "*[b", "[!]]"]),
    st.text("ab]", max_size=14),
)
def test_names_match_as_those_of_a_shell_do(pattern: str, name: str) -> None:
    expected = fnmatch.fnmatchcase(name, pattern)
    matcher = files.compile_name(pattern)
    assert (name == pattern if matcher is None else bool(matcher.fullmatch(name))) is expected


def test_no_name_is_compared_in_every_way() -> None:
    began_s = time.process_time()
    matcher = files.compile_name("*a" * 100 + "b")
    assert matcher is not None and not matcher.fullmatch("a" * 255)
    assert time.process_time() - began_s < 2.0


# -- event files of TensorBoard ----------------------------------------------------------------


def test_what_the_real_writer_wrote_is_read(place: Place) -> None:
    followed = place.follow(**BOARD)
    path = place.start / "runs/events.out.tfevents.1795486206.vm"
    path.parent.mkdir()
    path.write_bytes(bytes.fromhex(WRITTEN))
    followed.take(place.journal)
    (metric,) = place._parsed().metrics
    assert (metric.step, metric.name, metric.value) == (3, "val/loss", 0.5)
    assert 1.79e9 < metric.at_s < 1.80e9
    assert place.remarks() == []


def test_scalars_of_all_forms_are_read_while_they_are_written(place: Place) -> None:
    followed = place.follow(**BOARD)
    events = [
        event(1, simple("loss", 0.5)),
        event(2, tensor("loss", 0.25)),
        event(3, tensor("loss", 0.125, content=True)),
        event(-1, tensor("loss", 2.0, "d")),
        event(4, value("picture", field(4, b"\x89PNG"))),
    ]
    data = b"".join(events)
    write_events(place.start / "runs", data[:60])
    assert followed.take(place.journal)
    assert place.told() == [(1, "loss", 0.5)]
    with open(place.start / "runs/events.out.tfevents.1700000000.host", "ab") as file:
        file.write(data[60:])
    followed.take(place.journal)
    assert place.told()[1:] == [(2, "loss", 0.25), (3, "loss", 0.125), (-1, "loss", 2.0)]


def test_directories_below_stand_before_the_tag_as_tensorboard_names_runs(place: Place) -> None:
    followed = place.follow(**BOARD)
    for run, number in (("train", 1.0), ("validation", 2.0), (".", 3.0)):
        write_events(
            place.start / "runs" / run, event(0, simple("loss", number)), name=f"{number}.tfevents"
        )
    followed.take(place.journal, whole=True)
    assert place.told() == [(0, "train/loss", 1), (0, "validation/loss", 2), (0, "loss", 3)]


def test_a_pattern_takes_a_directory_away(place: Place) -> None:
    followed = place.follow(**{"from": "tensorboard", "path": "runs/*"})
    write_events(place.start / "runs/Nov24_12-00-00_host", event(0, simple("loss", 1.0)))
    followed.take(place.journal, whole=True)
    assert place.told() == [(0, "loss", 1)]


def test_files_that_were_there_before_are_of_others(place: Place) -> None:
    old = write_events(place.start / "runs", event(0, simple("loss", 1.0)), name="a.tfevents")
    followed = place.follow(**BOARD)
    with open(old, "ab") as file:
        file.write(event(1, simple("loss", 1.5)))
    copied = write_events(place.start / "runs", event(0, simple("loss", 3.0)), name="c.tfevents")
    os.utime(copied, (1, 1))
    write_events(place.start / "runs", event(0, simple("loss", 2.0)), name="b.tfevents")
    followed.take(place.journal, whole=True)
    assert [number for _, _, number in place.told()] == [2]


def test_a_wrong_sum_is_said_and_what_follows_is_read(place: Place) -> None:
    followed = place.follow(**BOARD)
    bad = bytearray(event(1, simple("loss", 1.0)))
    bad[-1] ^= 1
    write_events(place.start / "runs", bytes(bad), event(2, simple("loss", 2.0)))
    followed.take(place.journal, whole=True)
    assert place.told() == [(2, "loss", 2)]
    assert place.remarks() == [
        "the record at byte 31 of `runs/events.out.tfevents.1700000000.host` has a wrong sum and is"
        " not recorded"
    ]


def test_a_file_of_another_kind_is_said_and_left(place: Place) -> None:
    followed = place.follow(**BOARD)
    path = place.start / "runs/notes.tfevents.txt"
    path.parent.mkdir()
    path.write_text("no events, but a longer text")
    followed.take(place.journal, whole=True)
    followed.take(place.journal, whole=True)
    assert place.told() == []
    assert place.remarks() == [
        "the record at byte 0 of `runs/notes.tfevents.txt` has a wrong sum, so nothing after it is"
        " read; is it an event file of TensorBoard?"
    ]


def test_damaged_values_are_said(place: Place) -> None:
    followed = place.follow(**BOARD)
    write_events(place.start / "runs", framed(b"\x2a\xff"), name="a.tfevents")
    followed.take(place.journal, whole=True)
    assert place.remarks() == [
        "the record at byte 31 of `runs/a.tfevents` is damaged and is not recorded"
    ]


def test_a_record_that_no_look_holds_is_passed_over(place: Place) -> None:
    """A picture of two megabytes; its sum is not asked for either."""
    followed = place.follow(**BOARD)
    large = field(5, field(1, field(4, bytes(2 << 20))))
    frame = bytearray(framed(large[:100]))
    frame[:8] = len(large).to_bytes(8, "little")
    picture = bytes(frame[:8]) + masked(bytes(frame[:8])) + large + b"\0\0\0\0"
    write_events(place.start / "runs", picture, event(2, simple("loss", 2.0)))
    followed.take(place.journal, whole=True)
    assert (place.told(), place.remarks()) == ([(2, "loss", 2)], [])


def test_a_journal_takes_only_so_many_remarks(place: Place) -> None:
    followed = place.follow(**{"from": "jsonl", "path": "out/*"})
    for number in range(30):
        write(place, "x\n", name=f"out/{number:02}")
    followed.take(place.journal, whole=True)
    assert len(place.remarks()) == 20
    assert json.loads((place.runs / "r-1.jsonl").read_text().splitlines()[0])["e"] == "remark"
