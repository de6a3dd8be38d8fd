"""Notices that a run no longer makes progress within a time, and makes it write where it hangs;
samples how busy its GPUs are, how fast it steps, and what its processes use, each 15 s.

The run's supervisor calls Pace and Gpus once a second, and Load when it is due. Gpus calls
`nvidia-smi`, which every image with the driver has: a driver that hangs, as it does when a device
is lost, then holds up that process and not the supervisor, as NVML in here would. Without
`nvidia-smi` there is no sample.
"""

from __future__ import annotations

import os
import time

from fleetctl.guest.supervision.processes import read_stat, resident_bytes, send_signal

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

    from fleetctl.guest.journal.record import Journal

    Sample = list[list[int]]  # of each device: index, percent busy, MiB used, MiB in all


STACKS_SIGNAL = 46  # as library/sitecustomize.py registers it
STALLED = "Stalled"
STACKS_S = 1.0  # for processes to write their stacks, before they get TERM
LOOK_S_MAX = 3.0  # that one look counts; a machine that slept or starved did not see its task hang

EVERY_S = 15.0
AGAIN_S = 60.0  # a nearly constant sample is reported this often
CHANGE_PERCENT = 5  # of use, or of memory
SAMPLES_MAX = 1000  # of a run, before half as many are recorded, then a quarter, and so on
CPU_TIMES = slice(11, 15)  # in /proc/PID/stat, from the state on: its own, and its ended children's
CPU_CHANGE_PERCENT = 10  # of one core
MEMORY_CHANGE = 0.1
LATE_S = 10.0  # the driver hangs: no further call is made
ANSWER_BYTES_MAX = 64 * 1024
QUERY = (
    "nvidia-smi",
    "--query-gpu=index,utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
)


class Pace:
    def __init__(self, asked: Mapping[str, float], now_s: float) -> None:
        """asked: `timeout_s`, and `start_s` until the first step or checkpoint; in monotonic s."""
        self._timeout_s, self._start_s = asked["timeout_s"], asked["start_s"]
        self._looked_s = now_s
        self._quiet_s = 0.0
        self._signs: Optional[tuple[int, int, int]] = None

    def stalled(self, now_s: float, signs: tuple[int, int, int]) -> bool:
        """Returns whether the time without progress is over.

        signs: the highest step that it reported, -1 for none; how many checkpoints it completed;
        bytes of output. Output while it loads and compiles is not a step.
        """
        if signs == self._signs or self._signs is None:
            self._quiet_s += min(now_s - self._looked_s, LOOK_S_MAX)
        else:
            self._quiet_s = 0.0
        self._looked_s, self._signs = now_s, signs
        begun = signs[0] >= 0 or signs[1] > 0
        limit_s = self._timeout_s if begun else max(self._start_s, self._timeout_s)
        return self._quiet_s >= limit_s


def ends_in_s(
    pace: Pace,
    signs: tuple[int, int, int],
    *,
    say: Callable[[str], None],
    pids: Callable[[], Iterable[int]],
) -> Optional[float]:
    """Returns the seconds until a hanging task has to be ended; None while it makes progress. The
    task writes its stack traces before.

    signs: as `stalled` takes them; pids: its processes.
    """
    if not pace.stalled(time.monotonic(), signs):
        return None
    say(f"{STALLED}: nothing new for too long, see `progress`; it is being ended")
    if ask_for_stacks(pids()):
        return STACKS_S
    return 0.0


def ask_for_stacks(pids: Iterable[int]) -> int:
    """Makes Python processes write their stacks into the log; returns how many got the signal. It
    is not sent to processes that it would kill.
    """
    asked = 0
    for pid in pids:
        if _has_handler(pid) and send_signal(pid, STACKS_SIGNAL):
            asked += 1
    return asked


def _has_handler(pid: int) -> bool:
    """Returns whether the process has a handler for the signal."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (STACKS_SIGNAL - 1) & 1)
    except (OSError, ValueError, IndexError):
        return False
    return False


class SampleInterval:
    """The time between two samples of a run: 15 s, and twice as long after each SAMPLES_MAX."""

    def __init__(self) -> None:
        self.every_s = EVERY_S
        self.again_s = AGAIN_S
        self._count = 0

    def note(self) -> None:
        self._count += 1
        if self._count >= SAMPLES_MAX:
            self._count = 0
            self.every_s *= 2
            self.again_s = max(AGAIN_S, self.every_s)


class Load:
    """Samples the CPU time and the memory of a run's processes."""

    def __init__(self, begun_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """begun_s: when they began, by the clock."""
        self._clock = clock
        self._interval = SampleInterval()
        self._looked_at_s = self._told_at_s = begun_s
        self._ticks = 0
        self._told = (-1.0, 0.0)
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")

    def is_due(self) -> bool:
        return self._clock() - self._looked_at_s >= self._interval.every_s

    def take(self, pids: Iterable[int], journal: Journal) -> bool:
        """Records a sample where it differs from the one before; returns whether it did."""
        now_s = self._clock()
        ticks = 0
        used = 0
        for pid in pids:
            fields = read_stat(pid)
            ticks += sum(map(int, fields[CPU_TIMES])) if fields is not None else 0
            used += resident_bytes(pid)
        spent_s = max(ticks - self._ticks, 0) / self._ticks_per_s
        percent = 100.0 * spent_s / max(now_s - self._looked_at_s, 0.001)
        self._ticks = ticks
        self._looked_at_s = now_s
        mib = used / (1 << 20)
        if not self._is_news(percent, mib, now_s):
            return False
        self._told = (percent, mib)
        self._told_at_s = now_s
        self._interval.note()
        return journal.note("load", {"cpu": round(percent, 1), "memory_mib": round(mib, 1)})

    def _is_news(self, percent: float, mib: float, now_s: float) -> bool:
        before, held = self._told
        if before < 0 or now_s - self._told_at_s >= self._interval.again_s:
            return True
        busier = abs(percent - before) >= CPU_CHANGE_PERCENT
        return busier or abs(mib - held) > MEMORY_CHANGE * max(mib, held)


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
        self._interval = SampleInterval()
        self._step = (-1, 0.0)  # the highest reported step, and when it was read
        self._over = False  # no further sample is taken

    def take(self, journal: Journal, *, whole: bool = False) -> bool:
        now_s = self._clock()
        if whole or self._over:
            self._leave()
            return False
        if self._process is None:
            if now_s - self._asked_at_s >= self._interval.every_s:
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
        self._interval.note()
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
        if now_s - self._told_at_s >= self._interval.again_s or len(sample) != len(self._told):
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
