"""A file that does not respond delays the caller that named it, and no other."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.engine.execute.secrets import check_file
from fleetctl.manifest.files import fence, patience
from fleetctl.manifest.files.patience import call_in_file_thread


def content(path: Path) -> bytes:
    with fence.open_regular(path) as file:
        return file.read()


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file whose disk does not answer until the test ends."""
    answers, opened = threading.Event(), os.open
    path = tmp_path / "hangs"
    path.write_text("late")

    def wait(name: Any, *more: Any, **named: Any) -> int:
        if str(name) == str(path):
            answers.wait()
        return opened(name, *more, **named)

    monkeypatch.setattr(os, "open", wait)
    monkeypatch.setattr(patience, "HANG_S", 0.1)
    monkeypatch.setattr(patience, "LOOK_S", 0.02)
    yield path
    answers.set()


def test_who_names_a_file_that_hangs_is_told_which(hanging: Path) -> None:
    with pytest.raises(Unavailable, match=f"`{hanging}` was not read within"):
        asyncio.run(call_in_file_thread(content, hanging))


def test_others_are_answered_while_files_hang_and_the_process_ends(
    hanging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "HANG_S", 600.0)
    (tmp_path / "good").write_text("words")

    async def all_of_them() -> bytes:
        waiting = [asyncio.ensure_future(call_in_file_thread(content, hanging)) for _ in range(50)]
        found = await call_in_file_thread(content, tmp_path / "good")
        for it in waiting:
            it.cancel()
        return found

    assert asyncio.run(all_of_them()) == b"words"  # which would join threads of asyncio's own
    left = [it for it in threading.enumerate() if it.name == "fleetctl-files"]
    assert all(it.daemon for it in left)


def test_so_many_that_hang_and_no_more(hanging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LEFT_BEHIND_MAX", 3)

    async def again_and_again() -> str:
        for _ in range(10):
            try:
                await call_in_file_thread(content, hanging)
            except Unavailable as error:
                last = str(error)
        return last

    assert "files that manifests name do not answer" in asyncio.run(again_and_again())


def test_what_the_function_raises_is_raised(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(call_in_file_thread(content, tmp_path / "nothing"))


def file_threads() -> set[threading.Thread]:
    return {it for it in threading.enumerate() if it.name == "fleetctl-files"}


def test_a_secret_that_does_not_answer_is_not_waited_for_again(
    hanging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "BRIEF_S", 0.05)
    before = file_threads()  # of other tests, which may end meanwhile
    for _ in range(5):
        with pytest.raises(Unavailable, match="does not answer"):
            check_file("token", str(hanging))
    assert len(file_threads() - before) == 1
