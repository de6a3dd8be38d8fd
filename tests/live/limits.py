"""How far a check of a real service may go, in time and in money, and its suite run within that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetctl.providers.prices.price_table import load_prices
from fleetctl.specs.blocks.resources import Resources
from tests.guards import BEYOND

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Limits:
    """at_once: sandboxes, each of the smallest sort. after_s: of what is measured beside the suite.
    lifetime_s: of one that even the deletion at the end missed. above_asked: what a provider bills
    at most of what was asked for.
    """

    provider: str
    at_once: int
    suite_s: float
    lifetime_s: float
    usd: float
    above_asked: float = 1.0
    after_s: float = 0.0

    def worst_case_usd(self) -> float:
        price = load_prices(self.provider).usd_per_s(Resources())
        assert price is not None
        return self.at_once * self._lasts_s() * price * self.above_asked

    def _lasts_s(self) -> float:
        return self.suite_s + self.after_s + self.lifetime_s

    def told(self) -> str:
        """Raises AssertionError when it may cost more than it should."""
        most_usd = self.worst_case_usd()
        assert most_usd <= self.usd
        return (
            f"at most {self.at_once} sandboxes at once for {self._lasts_s():.0f} s,"
            f" at the prices of {load_prices(self.provider).updated}: never more than "
            f"${most_usd:.3f}"
        )

    def run(self, suite: str, words: list[str], variables: Mapping[str, str]) -> int:
        """pytest's exit code; 1 when it took too long."""
        pytest = [sys.executable, "-m", "pytest", "-v", "-x", "-p", "no:cacheprovider"]
        command = [*pytest, BEYOND, suite, *words]
        try:
            done = subprocess.run(command, cwd=ROOT, env=variables, timeout=self.suite_s)
        except subprocess.TimeoutExpired:
            print(f"error: the suite took more than {self.suite_s:.0f} s", file=sys.stderr)
            return 1
        return done.returncode
