"""What makes a play repeatable and lets no swallowed error pass: seeded ids, and ears for the
engine's log.
"""

from __future__ import annotations

import logging
import random
import secrets
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from unittest import mock

import pydantic

from fleetctl.common.errors import FleetctlError

# What the world does to the engine. Any other exception in its log is a bug of ours that it
# survived.
EXPECTED = (FleetctlError, OSError, TimeoutError, pydantic.ValidationError)


@contextmanager
def seeded_ids(seed: int) -> Iterator[None]:
    """uuid4 and token_hex draw from the seed, so that names and the order of rows are the same in
    every replay.
    """
    rng = random.Random(f"ids {seed}")
    with (
        mock.patch.object(uuid, "uuid4", lambda: uuid.UUID(int=rng.getrandbits(128), version=4)),
        mock.patch.object(secrets, "token_hex", lambda count: rng.randbytes(count).hex()),
    ):
        yield


class Complaints(logging.Handler):
    """Reports tracebacks of our own making in fleetctl's log, and keeps the rest quiet."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__()
        self._report = report
        self._log = logging.getLogger("fleetctl")

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Exception) and not isinstance(error, EXPECTED):
            where = error.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            line = (
                f"{where.tb_frame.f_code.co_filename.rpartition('/')[2]}:{where.tb_lineno}"
                if where
                else ""
            )
            self._report(f"our own error: {record.getMessage()}: {error!r} at {line}")

    def __enter__(self) -> Complaints:
        self._propagates, self._log.propagate = self._log.propagate, False
        self._log.addHandler(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._log.removeHandler(self)
        self._log.propagate = self._propagates
