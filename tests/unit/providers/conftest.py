"""What tests of provider `local` share: both tiers, and an end to the keepers of each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.local_worlds import stop_keepers


@pytest.fixture(autouse=True)
def _end_keepers(tmp_path: Path) -> Iterator[None]:
    yield
    stop_keepers(tmp_path / "home")
