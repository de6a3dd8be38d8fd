"""How many requests an endpoint carries at once, found by trying; pure."""

from dataclasses import dataclass

BUSY = (408, 429, 503)


@dataclass(slots=True)
class Adaptive:
    """`limit` stays between 1 and `most`: halved by a busy server, one more after a full round."""

    most: int
    limit: int
    answers: int = 0

    def answered(self) -> None:
        self.answers += 1
        if self.answers >= self.limit:
            self.limit, self.answers = min(self.most, self.limit + 1), 0

    def failed(self, status: int | None) -> None:
        """`status` None is a failed connection: that server rests, the others carry as much."""
        self.answers = 0
        if status in BUSY:
            self.limit = max(1, self.limit // 2)
