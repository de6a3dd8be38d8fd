"""Runs a Ray cluster around an attempt's work: the head beside the work on node 0, a worker on each
other node; all there before the work begins, and ended with it.

Called in the forked process that leads a node, instead of the work; it never returns. Ray's own
processes live in a session of their own: a TERM that ends the work leaves the cluster standing
until the work has ended, and `ray stop` is never called, which would end every cluster of the user.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from fleetctl.guest.task.program import COMMAND_NOT_FOUND

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from types import FrameType
    from typing import Any, Callable, Mapping, NoReturn, Optional

    Tell = Callable[[dict[str, Any]], None]

READY_S = 600.0  # a worker without its head would try for longer
SEEN_S = 5.0  # to notice the end of a leader, on a machine with too much to do
PAUSE_S = 0.1
SAID_BYTES_MAX = 2000
FAILED = "RayFailed"
NO_RAY = "the image has no program `ray`"  # a hint follows it in providers/rundir
NO_PACKAGE = 77  # an exit code of the program below
# Counts the nodes that Ray reports alive; exits when all have joined.
_COUNT = f"""
import sys, time
try:
    import ray
except ImportError:
    sys.exit({NO_PACKAGE})
address, count = sys.argv[1], int(sys.argv[2])
ray.init(address=address, log_to_driver=False, logging_level="ERROR")
while sum(1 for node in ray.nodes() if node["Alive"]) < count:
    time.sleep(0.2)
"""


def build_ray_variables(asked: Mapping[str, Any]) -> dict[str, str]:
    """Returns the variables of the work and of Ray's processes. Without a token anyone on the
    network could run code; it is new each time and stored nowhere. Nodes whose supervisors each
    start Ray bring a shared one in `token`.
    """
    shown = asked["dashboard_port"]
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": asked.get("token") or os.urandom(32).hex(),
        "RAY_ADDRESS": f"{asked['addresses'][0]}:{asked['port']}",
        **({"FLEETCTL_RAY_DASHBOARD": str(shown)} if shown else {}),
    }


class _RayEnded(BaseException):
    """TERM arrived while the work does not run in this process."""


class _RayFailed(Exception):
    """The cluster cannot be started, or has broken down."""


class _Missing(_RayFailed):
    """Ray is not in the image, nor will it be at the next attempt."""


def launch_node(
    asked: Mapping[str, Any],
    variables: Mapping[str, str],
    work: Callable[[], NoReturn],
    tell: Tell,
) -> NoReturn:
    """Leads this node of the cluster; called in the forked process.

    asked: `rank`, `addresses` of all nodes, `port`, `client_port`, `dashboard_port` (or None),
    `gpus` and `cpus` (or None) of this node, `memory` of its object store (or None), `temp`, a
    directory of at most 45 bytes. variables: the whole environment of the work, with those of
    build_ray_variables, the same on all nodes. work: never returns; called in a process of its own.
    tell: sends one event to the run's supervisor.
    """
    signal.signal(signal.SIGTERM, _raise_ended)
    cluster = _Cluster(asked, variables)
    code = 1
    try:
        cluster.start()
        code = cluster.lead(work) if asked["rank"] == 0 else cluster.serve()
    except _RayEnded:
        code = 128 + signal.SIGTERM
    except (_RayFailed, OSError) as error:
        message = str(error)
        reason = COMMAND_NOT_FOUND if isinstance(error, _Missing) else FAILED
        tell({"e": "error", "reason": reason, "message": message})
        os.write(2, f"fleetctl: {message}\n".encode("utf-8", "backslashreplace"))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if len(asked["addresses"]) > 1:
            cluster.end_behind_us()
        else:
            cluster.end()
    os._exit(code)


class _Cluster:
    """The part of a cluster that runs on this node."""

    def __init__(self, asked: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        self._asked = asked
        self._address = f"{asked['addresses'][0]}:{asked['port']}"
        self._variables = dict(variables)
        self._said = os.path.join(variables.get("TMPDIR", "/tmp"), "ray.log")
        self._ray: Optional[subprocess.Popen[bytes]] = None

    def start(self) -> None:
        """Starts Ray on this node. Raises _RayFailed."""
        import subprocess  # few attempts need it, and every supervisor loads this file

        own = {name: it for name, it in self._variables.items() if name != "RAY_ADDRESS"}
        with open(self._said, "wb") as output:
            try:
                self._ray = subprocess.Popen(
                    self._arguments(),
                    env=own,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            except FileNotFoundError:
                raise _Missing(NO_RAY) from None

    def lead(self, work: Callable[[], NoReturn]) -> int:
        """Leads from node 0: waits for all nodes, does the work, and returns its exit code. Raises
        _RayFailed and _RayEnded.
        """
        self._await_all()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the work receives TERM through its group
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            work()
        while True:
            ended, status = os.waitpid(-1, 0)
            if ended == pid:
                return _exit_code(status)
            if self._ray is not None and ended == self._ray.pid:
                self._ray.returncode = _exit_code(status)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise _RayFailed(f"Ray's head ended while the work ran: {self._last_words()}")

    def serve(self) -> int:
        """Serves on a further node, until it is killed after the end of node 0. A program that
        saves on TERM there needs the whole cluster. Raises _RayFailed.
        """
        assert self._ray is not None
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._ray.wait()
        raise _RayFailed(f"Ray's worker on this node ended: {self._last_words()}")

    def end_behind_us(self) -> None:
        """Calls `end` once this process has exited and the run's supervisor has noticed: a worker
        that lost its head before the work's own end is known would be taken for the cause.
        """
        leader = os.getpid()
        if os.fork() == 0:
            os.setsid()
            while os.getppid() == leader:
                time.sleep(PAUSE_S / 10)
            until_s = time.monotonic() + SEEN_S
            while os.path.exists(f"/proc/{leader}") and time.monotonic() < until_s:
                time.sleep(PAUSE_S / 10)
            self.end()
            os._exit(0)

    def end(self) -> None:
        """Ends every process of Ray's session, and removes its files."""
        if self._ray is not None:
            while kill_session(self._ray.pid):
                time.sleep(PAUSE_S / 10)
        if self._asked["rank"] == 0:
            import shutil

            shutil.rmtree(self._asked["temp"], ignore_errors=True)

    def _await_all(self) -> None:
        assert self._ray is not None
        count = len(self._asked["addresses"])
        until_s = time.monotonic() + READY_S
        probe: Optional[subprocess.Popen[bytes]] = None
        try:
            while True:
                if self._ray.poll() is not None:
                    raise _RayFailed(f"Ray's head did not start: {self._last_words()}")
                if time.monotonic() > until_s:
                    raise _RayFailed(f"not all {count} nodes joined Ray within {READY_S:.0f} s")
                if probe is None:
                    probe = self._probe(count)
                elif probe.poll() == 0:
                    return
                elif probe.returncode == NO_PACKAGE:
                    program = _find_python(self._variables)
                    raise _RayFailed(f"`{program}` has no package `ray`, which its program needs")
                elif probe.returncode is not None:
                    probe = None  # the head is not up yet
                time.sleep(PAUSE_S)
        finally:
            if probe is not None and probe.poll() is None:
                probe.kill()

    def _probe(self, count: int) -> subprocess.Popen[bytes]:
        import subprocess

        # Not from where the work begins: a file `ray.py` of the user would be taken for Ray.
        return subprocess.Popen(
            [_find_python(self._variables), "-c", _COUNT, self._address, str(count)],
            env=self._variables,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _arguments(self) -> list[str]:
        asked = self._asked
        own = self._asked["addresses"][self._asked["rank"]]
        program = _find_program(self._variables, "ray") or "ray"
        made = [program, "start", "--block", "--disable-usage-stats", f"--node-ip-address={own}"]
        made.append(f"--num-gpus={asked['gpus']}")
        if asked["cpus"]:
            made.append(f"--num-cpus={asked['cpus']}")
        if asked["memory"]:
            made.append(f"--object-store-memory={asked['memory']}")
        # In a range, raylets on one machine would give their workers the same ports.
        made += ["--min-worker-port=0", "--max-worker-port=0", f"--temp-dir={asked['temp']}"]
        if asked["rank"]:
            return [*made, f"--address={self._address}"]
        made += ["--head", f"--port={asked['port']}"]
        if self._has_client():
            made.append(f"--ray-client-server-port={asked['client_port']}")
        if asked["dashboard_port"]:
            shown = f"--dashboard-port={asked['dashboard_port']}"
            return [*made, "--include-dashboard=true", shown]
        return [*made, "--include-dashboard=false"]

    def _has_client(self) -> bool:
        """Returns whether Ray has a client server. It would listen on 10001 for each head; without
        it no port may be named.
        """
        import subprocess

        asked = [_find_python(self._variables), "-c", "import ray, grpc"]
        null = subprocess.DEVNULL
        done = subprocess.run(
            asked,
            env=self._variables,
            cwd="/",
            stdin=null,
            stdout=null,
            stderr=null,
            check=False,
        )
        return done.returncode == 0

    def _last_words(self) -> str:
        try:
            with open(self._said, "rb") as output:
                output.seek(0, os.SEEK_END)
                output.seek(max(0, output.tell() - SAID_BYTES_MAX))
                lines = output.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return ""
        return "\n".join(line for line in lines if line.strip())


def _raise_ended(_number: int, _frame: Optional[FrameType]) -> None:
    raise _RayEnded


def _find_python(variables: Mapping[str, str]) -> str:
    """Returns the Python that Ray is installed for."""
    return (
        _find_program(variables, "python3") or _find_program(variables, "python") or sys.executable
    )


def _find_program(variables: Mapping[str, str], program: str) -> str:
    """Returns the path of a program, or ""."""
    import shutil

    return shutil.which(program, path=variables.get("PATH")) or ""


def _exit_code(status: int) -> int:
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    return 128 + os.WTERMSIG(status)


def kill_session(session: int) -> bool:
    """Kills a session's processes; returns whether any was alive. Actors have their own groups."""
    found = False
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            # state, ppid, pgrp, session
            if int(fields[3]) == session and fields[0] not in b"ZX":
                found = True
                os.kill(int(name), signal.SIGKILL)
        except (OSError, IndexError, ValueError):
            continue
    if not os.path.isdir("/proc"):
        try:
            os.killpg(session, signal.SIGKILL)
        except OSError:
            return False
    while True:  # our own children
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
    return found
