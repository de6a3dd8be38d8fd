"""Where the state is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.common.state_paths import find_state_dir


def test_fleetctl_home_is_taken_as_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "x"))
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    assert find_state_dir() == tmp_path / "x"


def test_a_relative_fleetctl_home_is_made_absolute_and_a_tilde_is_the_users_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETCTL_HOME", "here")
    assert find_state_dir() == tmp_path / "here"
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("FLEETCTL_HOME", "~/fleet")
    assert find_state_dir() == Path("/home/me/fleet")


@pytest.mark.parametrize(
    ("state_home", "expected"),
    [
        ("/var/state", "/var/state/fleetctl"),
        ("", "/home/me/.local/state/fleetctl"),
        ("relative/is/ignored", "/home/me/.local/state/fleetctl"),
    ],
)
def test_the_default_follows_the_xdg_rules(
    monkeypatch: pytest.MonkeyPatch, state_home: str, expected: str
) -> None:
    monkeypatch.delenv("FLEETCTL_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_STATE_HOME", state_home)
    assert find_state_dir() == Path(expected)
