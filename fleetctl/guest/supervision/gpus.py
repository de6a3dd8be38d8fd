"""Samples how busy the GPUs of a run are, and how fast it steps, each 15 s while it runs.

Calls `nvidia-smi`, which every image with the driver has: a driver that hangs, as it does when a
device is lost, then holds up that process and not the run's supervisor, as NVML in here would. No
sample where it is missing. One of the followers of a run, called once a second.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Sequence

    from fleetctl.guest.journal.record import Journal

    Sample = list[list[int]]  # of each device: index, percent busy, MiB used, MiB in all

EVERY_S = 15.0
AGAIN_S = 60.0  # a nearly constant sample is reported this often
CHANGE_PERCENT = 5  # of use, or of memory
LATE_S = 10.0  # the driver hangs: no further call is made
ANSWER_BYTES_MAX = 64 * 1024
QUERY = (
    "nvidia-smi",
    "--query-gpu=index,utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
)


class Gpus:
    def __init__(
        self, devices: Optional[Sequence[int]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """devices: those of the run; None where it has all visible ones."""
        self._devices = devices
        self._clock = clock
        self._process: Any = None
        self._asked_at_s = self._told_at_s = float("-inf")
        self._answer = b""
        self._told: Sample = []
        self._step = (-1, 0.0)  # the highest reported step, and when it was read
        self._over = False  # no further sample is taken

    def take(self, journal: Journal, *, whole: bool = False) -> bool:
        now_s = self._clock()
        if whole or self._over:
            self._leave()
            return False
        if self._process is None:
            if now_s - self._asked_at_s >= EVERY_S:
                self._ask(now_s)
            return False
        answer = self._read_output()
        if answer is None:
            if now_s - self._asked_at_s > LATE_S:
                self._over = True
            return False
        sample = sample_of(answer, self._devices)
        if not sample or not self._is_news(sample, now_s):
            return False
        self._told = sample
        self._told_at_s = now_s
        speed = self._speed(journal.step, now_s)
        return journal.note("usage", {"gpus": sample, "steps_per_s": speed})

    def conclude(self, line: str, ended: dict[str, Any], journal: Journal) -> str:
        self._leave()
        return line

    def _ask(self, now_s: float) -> None:
        import subprocess

        self._asked_at_s = now_s
        self._answer = b""
        try:
            self._process = subprocess.Popen(
                QUERY,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            self._over = True
            return
        os.set_blocking(self._process.stdout.fileno(), False)

    def _read_output(self) -> Optional[bytes]:
        """Returns the whole output; None while it is incomplete."""
        try:
            data = os.read(self._process.stdout.fileno(), ANSWER_BYTES_MAX)
        except BlockingIOError:
            return None
        if data and len(self._answer) < ANSWER_BYTES_MAX:
            self._answer += data
            return None
        self._process.stdout.close()
        self._process.wait()
        self._process = None
        return self._answer

    def _is_news(self, sample: Sample, now_s: float) -> bool:
        if now_s - self._told_at_s >= AGAIN_S or len(sample) != len(self._told):
            return True
        both = zip(sample, self._told)
        pairs = [(_usage_shares(one), _usage_shares(other)) for one, other in both]
        return any(
            abs(new - old) >= CHANGE_PERCENT for now, then in pairs for new, old in zip(now, then)
        )

    def _speed(self, step: int, now_s: float) -> Optional[float]:
        """Returns steps a second since the last reported sample; None without one."""
        (before, at_s), self._step = self._step, (step, now_s)
        if before < 0 or step < before or now_s <= at_s:
            return None
        return round((step - before) / (now_s - at_s), 4)

    def _leave(self) -> None:
        if self._process is not None:
            self._process.kill()  # a process that hangs in the driver ends when the driver returns
            self._process.stdout.close()
            self._process = None


def sample_of(answer: bytes, devices: Optional[Sequence[int]]) -> Sample:
    """Returns the samples of these devices in nvidia-smi's output; none for a line with `[N/A]`,
    which a part of a device has.
    """
    found = []
    for line in answer.splitlines():
        try:
            one = [int(field) for field in line.split(b",")]
        except ValueError:
            continue
        if len(one) == 4 and one[3] > 0 and (devices is None or one[0] in devices):
            found.append(one)
    return found


def _usage_shares(one: list[int]) -> tuple[float, float]:
    _, busy, used, whole = one
    return busy, 100.0 * used / whole
