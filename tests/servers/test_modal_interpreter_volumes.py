"""Volumes of interpreters on Modal, by what the service really holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import modal
import pytest

from fleetctl import InterpreterError, ModalInterpreter
from tests.emulators.modal.running import ModalEmulator


@pytest.fixture
def emulator(
    modal_emulator: ModalEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModalEmulator]:
    """Where interpreters of this process go."""
    for name, value in {**modal_emulator.env, "FLEETCTL_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)
    yield modal_emulator
    assert modal_emulator.live() == []


def files(emulator: ModalEmulator, name: str) -> list[str]:
    [volume] = [one for one in emulator.state()["volumes"] if one["name"] == name]
    return sorted(volume["files"])


def made(emulator: ModalEmulator, name: str, version: int) -> None:
    client = emulator.client()
    modal.Volume.objects.create(name, version=version, client=client)
    client.close()


def test_a_volume_of_version_2_keeps_what_was_written_up_to_a_commit(
    emulator: ModalEmulator,
) -> None:
    made(emulator, "newer", 2)
    with ModalInterpreter(volume_name="newer") as one:
        one.execute("open('/data/a.txt', 'w').write('1')")
        one.commit()
        assert files(emulator, "newer") == ["a.txt"]


def test_a_commit_to_a_volume_of_version_1_says_that_only_the_end_does_it(
    emulator: ModalEmulator,
) -> None:
    made(emulator, "older", 1)
    with ModalInterpreter(volume_name="older") as one:
        one.execute("save_to_volume('a.txt', '1')")
        with pytest.raises(InterpreterError, match="`older` is of version 1") as caught:
            one.commit()
        assert "shutdown()" in str(caught.value.hint)
        assert one.execute("print(load_from_volume('a.txt'))") == "1\n"
    assert files(emulator, "older") == ["a.txt"]


def test_a_reload_with_open_files_says_so_and_the_session_lives_on(emulator: ModalEmulator) -> None:
    made(emulator, "held", 2)
    with ModalInterpreter(volume_name="held") as one:
        one.execute("kept = open('/data/a.txt', 'w')")
        with pytest.raises(Exception, match="there are open files preventing the operation"):
            one.reload()
        one.execute("kept.close()")
        one.reload()
