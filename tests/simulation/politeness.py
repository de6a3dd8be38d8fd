"""I16: how fast a provider is called, by how many at once, and whether its waits were kept."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tests.simulation.models import Model

# Of a call, so that rounding is no offence.
SLACK = 0.01


@dataclass(slots=True)
class Bucket:
    """A token bucket that holds as much as one second brings, and at least one call."""

    tokens: float
    filled_at_s: float


class Politeness:
    """Judges the calls of one incarnation, and the creates of all of them. `broken` gets one
    sentence per offence.
    """

    def __init__(self) -> None:
        self.broken: list[str] = []
        self._buckets: dict[str, Bucket] = {}
        self._at_once: defaultdict[str, int] = defaultdict(int)
        self._not_before: dict[tuple[str, str, str], float] = {}
        self._created: defaultdict[str, list[float]] = defaultdict(list)

    def new_incarnation(self) -> None:
        """A restarted controller has forgotten its bucket and its waits; neither is durable. How
        often it created is.
        """
        self._buckets.clear()
        self._at_once.clear()
        self._not_before.clear()

    def enter(self, model: Model, verb: str, run: str, *, now_s: float) -> None:
        contract = model.contract
        self._at_once[model.name] += 1
        if self._at_once[model.name] > contract.calls_at_once:
            self.broken.append(f"{self._at_once[model.name]} calls at once to `{model.name}`")
        if not self._take_token(model, now_s):
            self.broken.append(
                f"more than {contract.calls_per_s:g} calls a second to `{model.name}`"
            )
        if now_s < self._not_before.get((model.name, verb, run), 0.0) - SLACK:
            self.broken.append(
                f"`{verb} {run}` came before `{model.name}` wanted to be asked again"
            )

    def creates(self, model: Model, *, now_s: float) -> None:
        """A call that may make a sandbox."""
        recent = [at_s for at_s in self._created[model.name] if at_s > now_s - 60.0 + SLACK]
        self._created[model.name] = [*recent, now_s]

    def creates_in_the_last_minute(self, provider: str) -> int:
        return len(self._created[provider])

    def leave(self, model: Model) -> None:
        self._at_once[model.name] -= 1

    def told_to_wait(self, model: Model, verb: str, run: str, *, until_s: float) -> None:
        self._not_before[model.name, verb, run] = until_s

    def _take_token(self, model: Model, now_s: float) -> bool:
        rate = model.contract.calls_per_s
        full = max(1.0, rate)
        bucket = self._buckets.setdefault(model.name, Bucket(full, now_s))
        bucket.tokens = min(full, bucket.tokens + (now_s - bucket.filled_at_s) * rate) - 1.0
        bucket.filled_at_s = now_s
        return bucket.tokens > -SLACK
