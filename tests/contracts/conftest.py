"""Shared by the contract suites: their assertions explain themselves as those of test modules
do.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.contracts.provider_suite", "tests.contracts.provider_outputs")
