"""One served fleet for the tests of a file; each uses names of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.served import ServedFleet


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFleet]:
    fleet = ServedFleet(tmp_path_factory.mktemp("api") / "home")
    yield fleet
    fleet.close()
