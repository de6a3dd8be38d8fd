"""The client against a real socket: replies, refusals, silence and absence."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

from fleetctl.common.errors import FleetctlError
from fleetctl.common.state_paths import SOCKET
from fleetctl.daemon.client.socket_client import (
    NotRunning,
    ping_controller,
    raise_refusal,
    send_request,
)
from tests.cli_controller import controller


def test_a_request_is_one_line_and_so_is_the_reply(tmp_path: Path) -> None:
    with controller(tmp_path, lambda _: b'{"ok":true,"pid":7}\n') as asked:
        assert send_request(tmp_path, {"verb": "ping", "text": "a\nb"}) == {"ok": True, "pid": 7}
    assert json.loads(asked[0]) == {"verb": "ping", "text": "a\nb"}
    assert asked[0].count(b"\n") == 1


def test_a_large_request_and_a_large_reply_arrive_whole(tmp_path: Path) -> None:
    text = "x" * 3_000_000
    with controller(tmp_path, lambda line: line):
        assert send_request(tmp_path, {"text": text}) == {"text": text}


def test_a_home_with_a_path_too_long_for_a_socket_is_reached(tmp_path: Path) -> None:
    home = tmp_path / ("d" * 120) / "e"
    with controller(home, lambda _: b'{"ok":true}\n'):
        assert send_request(home, {"verb": "ping"}) == {"ok": True}


@pytest.mark.parametrize("folder", ["", "missing", "m" * 150])
def test_no_socket_means_that_no_controller_runs(tmp_path: Path, folder: str) -> None:
    with pytest.raises(NotRunning):
        send_request(tmp_path / folder, {"verb": "ping"})
    assert ping_controller(tmp_path / folder) is None


def test_a_socket_that_a_dead_controller_left_means_that_none_runs(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / SOCKET))
    listener.close()
    with pytest.raises(NotRunning):
        send_request(tmp_path, {"verb": "ping"})


def test_a_controller_that_hangs_up_leaves_the_outcome_open_and_says_so(tmp_path: Path) -> None:
    with controller(tmp_path, lambda _: b""), pytest.raises(FleetctlError, match="may or may not"):
        send_request(tmp_path, {"verb": "apply"})


def test_half_a_reply_is_no_reply(tmp_path: Path) -> None:
    with (
        controller(tmp_path, lambda _: b'{"ok":tr'),
        pytest.raises(FleetctlError, match="ended before it answered"),
    ):
        send_request(tmp_path, {"verb": "apply"})


def test_a_controller_that_never_answers_is_given_up(tmp_path: Path) -> None:
    release = threading.Event()

    def respond(_line: bytes) -> bytes:
        release.wait(10)
        return b""

    with controller(tmp_path, respond):
        with pytest.raises(FleetctlError, match=r"did not answer within 0\.1 s"):
            send_request(tmp_path, {"verb": "apply"}, wait_s=0.1)
        release.set()


def test_a_refusal_keeps_its_code_its_hint_and_all_its_errors() -> None:
    with pytest.raises(FleetctlError) as caught:
        raise_refusal({"ok": False, "code": 5, "errors": ["a: 1", "b: 2"], "hint": "h"})
    assert (caught.value.exit_code, caught.value.hint) == (5, "h")
    assert str(caught.value) == "a: 1\nerror: b: 2"


def test_a_refusal_without_words_is_still_an_error() -> None:
    with pytest.raises(FleetctlError, match="no reason given") as caught:
        raise_refusal({"ok": False})
    assert caught.value.exit_code == 1
