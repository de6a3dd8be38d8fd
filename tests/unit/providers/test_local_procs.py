"""Finding the processes of a run at the instants where they change their parents."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

import pytest

from fleetctl.providers.local.supervisor.run import procs

PR_SET_CHILD_SUBREAPER = 36
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no parent adopts")


def _finds_the_orphan() -> bool:
    """Kills a child as it is looked at, after the list of children was read; returns whether its
    own child, now ours, is all that is found.

    Compared by process id: a name is the shell's until the program is loaded.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    parent = subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    orphan = int(parent.stdout.readline())
    looked = procs.is_zombie

    def kill_then_look(pid: int) -> bool:
        if pid == parent.pid and not looked(pid):
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it is dead, and not yet reaped
        return looked(pid)

    procs.is_zombie = kill_then_look
    found = procs.list_living_children(lambda _: True)
    procs.kill_all(found)
    return list(found) == [orphan]


def test_children_of_a_child_that_dies_while_children_are_listed_are_found() -> None:
    pid = os.fork()
    if pid == 0:  # a process of its own: who adopts orphans once does so for ever
        code = 1
        try:
            code = 0 if _finds_the_orphan() else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
