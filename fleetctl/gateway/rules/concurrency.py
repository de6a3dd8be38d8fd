"""Finds how many requests a server carries at once: as declared, or found by trying; pure."""

from dataclasses import dataclass, field

BUSY = (408, 429, 503)
UNKNOWN_SLOTS = 64  # tried at most where `slots` is left out
FIRST = 8  # of a server of unknown slots; doubled at each full round until it is too much
SLOWER, MORE = 2.0, 1.1  # twice as slow, without a tenth more answers a second, is too much


@dataclass(slots=True)
class ServerPace:
    """The limit of concurrent requests of a server. `limit` stays between 1 and `most`: halved by
    a busy server, raised after a full round, which is `limit` answers to requests that found the
    server at its limit.

    trying: the capacity is not declared, so the times of the answers count, too.
    """

    most: int
    trying: bool = False
    limit: int = 0
    _doubling: bool = False
    _answers: int = 0
    _seconds: float = 0.0  # of the answers of this round
    _round_at_s: float = 0.0
    _halved_at_s: float = float("-inf")
    # (seconds an answer, answers a second), or not known yet
    _best: tuple[float, float] | None = field(default=None)

    def __post_init__(self) -> None:
        self.limit = self.limit or (min(FIRST, self.most) if self.trying else self.most)
        self._doubling = self.trying

    def declare(self, most: int, *, trying: bool) -> None:
        """Sets the limit of the current spec; keeps the limit that was found as far as it fits."""
        if (most, trying) == (self.most, self.trying):
            return
        first = trying and not self.trying
        self.limit = min(FIRST if first else self.limit, most) if trying else most
        self._doubling = first or (trying and self._doubling)
        self.most = most
        self.trying = trying
        self._best = None

    def record_answer(
        self,
        now_s: float,
        took_s: float,
        *,
        full: bool,
    ) -> None:
        """Records an answer. full: the request found the server at its limit; answers to other
        requests are no evidence about the limit.
        """
        if not full:
            return
        if not self._answers:
            self._round_at_s = max(self._round_at_s, now_s - took_s)
        self._answers += 1
        self._seconds += took_s
        if self._answers < self.limit:
            return
        each_s = self._seconds / self._answers
        rate = self._answers / max(1e-6, now_s - self._round_at_s)
        self._answers = 0
        self._seconds = 0.0
        self._round_at_s = now_s
        if self.trying and self._too_much(each_s, rate):
            self._halve(now_s)
        elif self.limit < self.most:
            self.limit = min(self.most, self.limit * 2 if self._doubling else self.limit + 1)

    def failed(
        self,
        status: int | None,
        now_s: float,
        *,
        begun_s: float,
    ) -> None:
        """Records a failure; `status` None is a failed connection: that server rests, the others
        carry as much. Requests that began before the last halving are no evidence about the load
        since.
        """
        self._answers = 0
        self._seconds = 0.0
        if status in BUSY and begun_s >= self._halved_at_s:
            self._halve(now_s)

    def _too_much(self, each_s: float, rate: float) -> bool:
        if self._best is None:
            self._best = each_s, rate
            return False
        least_s, most = self._best
        self._best = min(least_s, each_s), max(most, rate)
        return each_s >= SLOWER * least_s and rate <= MORE * most

    def _halve(self, now_s: float) -> None:
        # Compared again from here: longer prompts are slower, too, at whatever limit.
        self.limit = max(1, self.limit // 2)
        self._doubling = False
        self._best = None
        self._halved_at_s = now_s
