"""A user who never named Kubernetes has no kubeconfig, and sees no library's message about it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused
from fleetctl.kubernetes import connection


def test_a_missing_kubeconfig_is_said_in_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(connection, "USUAL_FILE", tmp_path / "config")
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(Refused, match=f"^there is no kubeconfig `{tmp_path}/config`$"),
    ):
        asyncio.run(connection.connect_cluster())
    assert (capfd.readouterr(), caplog.records) == (("", ""), [])
