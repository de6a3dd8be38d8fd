"""I16: how many calls a provider got, how many at once, and whether waits that it asked for were
kept.
"""

from __future__ import annotations

from collections import defaultdict, deque

from tests.simulation.models import Model

WINDOW_S = 10.0

# A token bucket may be full when the window begins, so that much may come on top; a guess at its
# size.
BURST_S = 1.0


class Politeness:
    """Survives crashes: a provider counts calls whoever makes them. `broken` gets one sentence per
    offence.
    """

    def __init__(self, *, incarnations: int = 1) -> None:
        self.broken: list[str] = []
        self._calls: defaultdict[str, deque[float]] = defaultdict(deque)
        self._at_once: defaultdict[str, int] = defaultdict(int)
        self._not_before: dict[tuple[str, str, str], float] = {}
        self._incarnations = incarnations

    def new_incarnation(self) -> None:
        """A restarted controller has forgotten its bucket and its waits; both are its own, not
        durable.
        """
        self._incarnations += 1
        self._at_once.clear()
        self._not_before.clear()
        self._calls.clear()

    def enter(self, model: Model, verb: str, run: str, *, now_s: float) -> None:
        contract = model.contract
        self._at_once[model.name] += 1
        if self._at_once[model.name] > contract.calls_at_once:
            self.broken.append(f"{self._at_once[model.name]} calls at once to `{model.name}`")
        calls = self._calls[model.name]
        calls.append(now_s)
        while calls[0] < now_s - WINDOW_S:
            calls.popleft()
        allowed = contract.calls_per_s * (WINDOW_S + BURST_S) + contract.calls_at_once
        if len(calls) > allowed:
            self.broken.append(f"{len(calls)} calls to `{model.name}` in {WINDOW_S:.0f} s")
        if now_s < self._not_before.get((model.name, verb, run), 0.0) - 0.001:
            self.broken.append(
                f"`{verb} {run}` came before the time that `{model.name}` had asked to wait"
            )

    def leave(self, model: Model) -> None:
        self._at_once[model.name] -= 1

    def told_to_wait(
        self, model: Model, verb: str, run: str, retry_after_s: float, now_s: float
    ) -> None:
        if retry_after_s > 0.0:
            self._not_before[model.name, verb, run] = now_s + retry_after_s
