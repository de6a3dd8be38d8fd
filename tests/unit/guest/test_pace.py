"""When a run counts as hung."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from fleetctl.guest.supervision.pace import STACKS_SIGNAL, Pace, ask_for_stacks

LIMITS = {"timeout_s": 10.0, "start_s": 60.0}


@pytest.mark.parametrize(
    ("looks", "stalled_at_s"),
    [
        ([], 60.0),
        ([(5.0, -1, 0, 80)], 65.0),  # what it says while it loads is no step
        ([(5.0, 0, 0, 80)], 15.0),
        ([(5.0, -1, 1, 0)], 15.0),
        ([(5.0, 1, 0, 0), (14.0, 1, 0, 90)], 24.0),
        ([(5.0, 1, 0, 0), (14.0, 1, 1, 0)], 24.0),
        ([(5.0, 2, 0, 0), (14.0, 2, 0, 0)], 15.0),  # a step that is told again is none
    ],
)
def test_case_11_it_hangs_when_nothing_is_new_for_too_long(
    looks: list[tuple[float, int, int, int]], stalled_at_s: float
) -> None:
    pace = Pace(LIMITS, 0.0)
    signs = (-1, 0, 0)
    at_s = 0.0
    for when_s, step, checkpoints, output in [
        *looks,
        (1e9, *(looks[-1][1:] if looks else (-1, 0, 0))),
    ]:
        while at_s < when_s:
            if pace.stalled(at_s, signs):
                assert at_s == stalled_at_s
                return
            at_s += 1.0
        signs = (step, checkpoints, output)
    raise AssertionError("it never hung")


def test_time_in_which_nobody_looked_is_no_time_without_progress() -> None:
    pace = Pace(LIMITS, 0.0)
    assert not pace.stalled(1.0, (5, 0, 0))
    assert not pace.stalled(2.0, (5, 0, 0))
    # The machine slept for an hour: what the task wrote before is read after this look.
    assert not pace.stalled(3602.0, (5, 0, 0))
    assert not pace.stalled(3603.0, (6, 0, 0))
    quiet = [pace.stalled(3603.0 + second, (6, 0, 0)) for second in range(1, 11)]
    assert quiet == [False] * 9 + [True]


@pytest.mark.skipif(sys.platform != "linux", reason="the signal is one of Linux")
def test_only_who_has_a_handler_is_asked_for_stacks() -> None:
    code = (
        "import faulthandler, sys\n"
        "if sys.argv[1] == 'shows': faulthandler.register(46)\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, word],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for word in ("shows", "would die")
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    assert ask_for_stacks([process.pid for process in processes]) == 1
    ends = [process.communicate() for process in processes]
    assert b'File "<string>", line 3 in <module>' in ends[0][1]
    assert [process.returncode for process in processes] == [0, 0]
    assert STACKS_SIGNAL > signal.SIGSYS
