"""What tests of provider `local` share: both tiers, and an end to the supervisors of each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.local_worlds import stop_supervisors


@pytest.fixture(autouse=True)
def _end_supervisors(tmp_path: Path) -> Iterator[None]:
    yield
    stop_supervisors(tmp_path / "home")
