"""`orphans` of a provider that cannot be reached never says that there are none."""

from __future__ import annotations

import io
import socket
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen


def test_orphans_of_a_daytona_that_is_away_are_unknown_and_not_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DAYTONA_API_KEY", "of-nobody")
    with socket.socket() as deaf:  # bound and never listening: each connection is refused
        deaf.bind(("127.0.0.1", 0))
        monkeypatch.setenv("DAYTONA_API_URL", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        out, talk = io.StringIO(), io.StringIO()
        code = run_guarded(["orphans", "--provider", "daytona"], Screen(out, talk))
    assert code == 1 and "cannot reach Daytona" in talk.getvalue()
    assert "others are not known" in talk.getvalue()
    assert "no orphans\n" not in out.getvalue() + talk.getvalue()
