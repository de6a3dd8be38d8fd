"""Detects a server that answers one request at a time though several were sent at once; pure.

The evidence is a burst: requests that began while the server had answered no request of the burst.
A server with one slot answers them in the order they came, each as long after the last as the first
took; one with several answers some together, or out of order.
"""

import itertools
import statistics
from dataclasses import dataclass, field

LEAST, MOST = 6, 32  # requests of a burst
EVEN = 0.5  # of the usual step, the shortest that a step may be
OUT_OF_ORDER_MAX = 0.2  # of all pairs; connections that are made at once overtake each other


@dataclass(slots=True)
class Burst:
    """A burst of requests. at_once: size of the last burst that was answered one at a
    time; else 0.
    """

    at_once: int = 0
    _open: bool = True  # no request is answered yet
    _begun: dict[int, float] = field(default_factory=dict)
    _ended: list[tuple[int, float]] = field(default_factory=list)

    def begin(self, request: int, now_s: float) -> None:
        if self._open and len(self._begun) < MOST:
            self._begun[request] = now_s

    def end(
        self,
        request: int,
        now_s: float,
        *,
        answered: bool,
        idle: bool,
    ) -> None:
        """Records the end of a request. idle: no other request is in flight, so that the next one
        begins a burst.
        """
        if request in self._begun:
            self._open = False
            if answered:
                self._ended.append((request, now_s))
            else:
                del self._begun[request]
            if len(self._ended) == len(self._begun) >= LEAST:
                one = one_at_a_time(list(self._begun.items()), self._ended)
                self.at_once = len(self._ended) if one else 0
        if idle:
            self._open = True
            self._begun = {}
            self._ended = []


def one_at_a_time(begun: list[tuple[int, float]], ended: list[tuple[int, float]]) -> bool:
    """Returns True if requests were answered one after another.

    begun, ended: (request number, seconds), each in the order in which they happened.
    """
    place = {request: n for n, (request, _) in enumerate(begun)}
    order = [place[request] for request, _ in ended]
    pairs = [a > b for n, a in enumerate(order) for b in order[n + 1 :]]
    first_s = ended[0][1] - dict(begun)[ended[0][0]]
    times = [at_s for _, at_s in ended]
    steps = [after - before for before, after in itertools.pairwise(times)]
    usual_s = statistics.median(steps)
    even = min(steps) >= EVEN * usual_s and usual_s >= EVEN * first_s
    return even and sum(pairs) <= OUT_OF_ORDER_MAX * len(pairs)
