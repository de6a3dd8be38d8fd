"""`python -m tests.workers COUNT [OPTION ...]`: pytest with that many workers of pytest-xdist, each
a fork of this process, which has imported and collected every test before (collected.py). Called
by `make unit`.

A worker that begins with an interpreter of its own takes eight seconds of CPU to import the tests
and what they need, the SDKs of both clouds among that, and three to collect them. For each worker
pytest starts a program, by --tx; ours, client.py, hands its standard streams to this process.

Where root may, the files of tests are in memory: a store waits for the disk at each commit.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings, strategies

from tests import costs
from tests.emulators.boxes.inner import calls
from tests.emulators.starting import preload
from tests.workers import collected

CLIENT = Path(__file__).with_name("client.py")
LOOK_S = 0.2  # how often it is asked whether pytest has ended
# As pytest-xdist has it for -n. Without a limit, a test that ends its worker does so for ever.
RESTARTS_A_WORKER = 4
# With fewer workers, such as of `make check`, the process that emulators are forked from is started
# where a test needs it, for most need none.
FEW_WORKERS = 4
# Hypothesis looks for constants of a program at one draw in twenty, so among these surely.
DRAWS = 200
# Most bytes of memory for the files of a run; a machine needs twice that.
MEMORY_MAX_BYTES = 6 * 1024**3


def main(count: int, options: Sequence[str]) -> int:
    """The exit code of pytest."""
    environment = dict(os.environ)
    if sys.platform != "linux":
        # Libraries of macOS do not outlive a fork.
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-n", str(count), *options]
        ).returncode
    with mount_memory() as base:
        kept = [f"--basetemp={base}", "-o", "tmp_path_retention_policy=failed"] if base else []
        code = _run_forks(count, [*kept, *options], environment)
        if code and base is not None:
            keep_failed(base)
        return code


@contextlib.contextmanager
def mount_memory() -> Iterator[Path | None]:
    """Yields a directory in memory that pytest makes; None where that cannot be. This process and
    its children alone see the mount, which ends with them.
    """
    with tempfile.TemporaryDirectory(prefix="memory-") as directory:
        if not _mount_tmpfs(directory):
            yield None
            return
        try:
            yield Path(directory, "t")
        finally:
            subprocess.run(["umount", "--lazy", directory], check=True)


def keep_failed(base: Path) -> None:
    """Copies the files of tests that failed, each in a directory of its worker, to the disk."""
    failed = [it for it in base.glob("popen-*/test_*") if it.is_dir() and not it.is_symlink()]
    if not failed:
        return
    kept = Path(tempfile.mkdtemp(prefix="failed-tests-"))
    for path in failed:
        with contextlib.suppress(shutil.Error):  # sockets and pipes cannot be copied
            shutil.copytree(path, kept / path.name, symlinks=True, dirs_exist_ok=True)
    print(f"files of tests that failed: {kept}")


def _mount_tmpfs(directory: str) -> bool:
    if os.geteuid() or _read_available_bytes() < 2 * MEMORY_MAX_BYTES:
        return False
    try:
        calls.unshare(calls.CLONE_NEWNS)
        calls.mount("none", "/", "", calls.MS_REC | calls.MS_PRIVATE)
        calls.mount("tmpfs", directory, "tmpfs", 0, f"size={MEMORY_MAX_BYTES},mode=0700")
    except OSError:  # root of a container has fewer rights
        return False
    return True


def _read_available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024


def _run_forks(count: int, options: Sequence[str], environment: dict[str, str]) -> int:
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        # What cannot be imported is reported by the workers, which try again.
        words = ["--collect-only", "-qq", "-p", "no:xdist", *_without_dist(options)]
        pytest.main(words, plugins=[collected.CollectedTests()])
    read_constants()
    os.environ.clear()
    os.environ.update(environment)
    # A record of costs has the emulators of each worker apart.
    if count > FEW_WORKERS and costs.VARIABLE not in os.environ:
        _start_fork_server()
    gc.collect()
    gc.freeze()  # a collection in a worker would copy what all share
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{directory}/workers")
        listener.listen(count)
        client = shlex.join([sys.executable, "-I", "-S", str(CLIENT), f"{directory}/workers"])
        words = ["--tx", f"{count}*popen//python={client}"]
        words += [f"--max-worker-restart={RESTARTS_A_WORKER * count}", "-p", collected.__name__]
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # pytest hears it too, and ends all
        run = subprocess.Popen(
            [sys.executable, "-m", "pytest", *words, *options], preexec_fn=_hear_interrupts
        )
        return _serve(listener, run)


@settings(max_examples=DRAWS, phases=[Phase.generate], database=None, derandomize=True)
@given(strategies.integers())
def read_constants(_: int) -> None:
    """Has Hypothesis read the constants of all imported modules once, and not in each worker."""


def _start_fork_server() -> None:
    """Starts the process that emulators and commands are forked from once for all workers: each has
    two seconds of imports.
    """
    preload(multiprocessing.get_context("forkserver"))
    server = forkserver._forkserver
    server.ensure_running()
    # Workers use it as their own, but only its parent may ask whether it lives.
    server.ensure_running = lambda: None  # type: ignore[method-assign]


def _without_dist(options: Sequence[str]) -> list[str]:
    """Without what pytest-xdist alone knows."""
    words = list(options)
    if "--dist" in words:
        at = words.index("--dist")
        del words[at : at + 2]
    return words


def _serve(listener: socket.socket, run: subprocess.Popen[bytes]) -> int:
    workers: list[int] = []
    listener.settimeout(LOOK_S)
    while (code := run.poll()) is None:
        with contextlib.suppress(TimeoutError):
            connection, _ = listener.accept()
            with connection:
                _, streams, _, _ = socket.recv_fds(connection, 1, 3)
                pid = os.fork()
                if not pid:
                    listener.close()
                    _work(connection, streams)
                workers.append(pid)
                for stream in streams:
                    os.close(stream)
    for pid in workers:
        # Those that ended are zombies until now, so that no number names a stranger.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return code


def _work(connection: socket.socket, streams: Sequence[int]) -> None:
    """What `python -c` does with the line that pytest-xdist gives it. Never returns: the client
    learns that we have ended by the end of the connection.
    """
    _hear_interrupts()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    try:
        exec(eval(sys.stdin.readline()), {"__name__": "__main__"})
    except SystemExit:
        pass
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        connection.close()
        os._exit(0)


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
