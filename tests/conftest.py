"""What every ring of tests shares: how hypothesis behaves, and which tests run where and when.

A build is repeatable, so examples are the same each time; `pytest --hypothesis-profile explore`
looks further. No example has a deadline: no test fails by time.
"""

from __future__ import annotations

from hypothesis import settings

from tests.order import pytest_collection_modifyitems, pytest_xdist_make_scheduler

__all__ = ["pytest_collection_modifyitems", "pytest_xdist_make_scheduler"]

settings.register_profile("build", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("build")
