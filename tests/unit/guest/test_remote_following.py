"""Following a run that begins or ends between two looks at its supervisor and its journal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fleetctl.guest.remote import stream

LOST = '{"e":"lost","message":"the process that looked after the run died"}\n'


class Journal:
    """One whose news come in turns; it is there from the first look."""

    there = True

    def __init__(self, turns: Sequence[bytes]) -> None:
        self._turns = list(turns)

    def next_frames(self) -> bytes:
        return self._turns.pop(0) if self._turns else b""

    @property
    def over(self) -> bool:
        return not self._turns


@pytest.mark.parametrize(
    ("supervised", "news", "code", "written"),
    [
        # It was looked at before its supervisor began, and its journal just after.
        ([False, True], [b"", b"begun\n", b""], 0, "begun\n"),
        # It died between both looks, and what it had written comes first.
        ([False, False, False], [b"", b"last\n", b"", b"", b"-"], stream.LOST, f"last\n{LOST}"),
    ],
)
def test_a_supervisor_is_lost_only_if_it_is_gone_at_two_looks(
    supervised: list[bool],
    news: list[bytes],
    code: int,
    written: str,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setattr(stream.place, "is_supervised", lambda: supervised.pop(0))
    monkeypatch.setattr(stream, "_wait_for_news", lambda line, span_s: None)
    assert stream._follow_run("run", Journal(news), None) == code  # type: ignore[arg-type]
    assert capfdbinary.readouterr().out.decode() == written
