"""Starts a supervisor: from a fork of the zygote to a loop that serves.

Reads from its first client which directory and config are its own, takes the directory's lock (held
for as long as it lives: its identity), builds its tier, and greets that client or sends it the
error. Called by zygote.py alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import resource
import signal
import socket
import sys
import time
from types import ModuleType
from typing import Any, Callable, NoReturn

from fleetctl.guest.reports import load_parts

from .isolation import mounts, spaces
from .run import procs
from .run.child import DESCRIPTORS_MAX, clamp_limit, compute_rlimits
from .run.sandbox import BeginLog
from .serve import LocalSupervisor

HERE = os.path.dirname(os.path.abspath(__file__))  # on the path because we are run from it
LOCK_WAIT_S = 0.3  # the supervisor before us may still be leaving
CONFIG_WAIT_S = 30.0  # for a client that is busy; it sends the config with the socket
PREIMPORT_S = 55  # below what the controller waits for a supervisor


def main(
    connection: socket.socket,
    guest: ModuleType,
    *,
    in_namespaces: bool,
) -> None:
    """Reads the order, builds the isolation and serves runs until the job ends. in_namespaces:
    whether this process was born in its own.
    """
    order = _first_line(connection)
    directory: str = order["directory"]
    config: dict[str, Any] = order["config"]
    lock = _take_lock(directory, connection)
    token = f"{os.path.basename(directory)}/{os.urandom(8).hex()}"
    runs = os.open(config["runs_dir"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _write_identity(lock, token, config)
    begun = BeginLog(os.path.join(directory, "begun"), config["boot"])
    listener, leave = _open_socket(directory)
    try:
        note = _build_tier(config, directory, runs, in_namespaces)
    except OSError as error:
        _give_up(connection, str(error))
    config["identity"] = {"keeper": token, "boot": config["boot"]}
    config["note"] = note
    _clean_environment(config["env"])
    config["short_names"] = mounts.prepare_names(directory)
    config["rlimits"] = compute_rlimits(config["limits"])
    _prepare_python(config, guest)
    supervisor = LocalSupervisor(config, listener, (runs, begun))
    # again, so that the kernel reports our process to clients and not our parent's
    listener.listen(64)
    supervisor.greet(connection)
    supervisor.serve()
    spaces.remove_links(config)
    mounts.remove_names(directory)
    leave()
    os._exit(0)


def silence_output() -> None:
    """Silences output: prints here have no reader, and input no writer."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def forget_own_modules() -> None:
    """Forgets our own modules, so that a task's module named like one of ours is found. None of
    them can be imported from now on.
    """
    load_parts()
    ours = (__name__.partition(".")[0], "fleetctl")
    for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
        del sys.modules[name]


def _first_line(connection: socket.socket) -> dict[str, Any]:
    """Returns the first client's first message; it waits for our greeting before it sends more."""
    connection.settimeout(CONFIG_WAIT_S)
    received = bytearray()
    while not received.endswith(b"\n"):
        data = connection.recv(1024 * 1024)
        if not data:
            os._exit(0)  # it has gone
        received += data
    document: dict[str, Any] = json.loads(received)
    return document


def _take_lock(directory: str, connection: socket.socket) -> int:
    lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > deadline:
                _send_message(connection, {"taken": True})
                os._exit(1)
            time.sleep(0.01)


def _write_identity(
    lock: int,
    token: str,
    config: dict[str, Any],
) -> None:
    """Writes the identity of the lock's holder, and the range of marks that its processes carry,
    for a process that finds the holder dead.
    """
    number = int.from_bytes(os.urandom(8), "big") % (procs.SUPERVISORS - 1) + 1
    config["mark_base"] = number * procs.RUNS_PER_SUPERVISOR
    config["boot"] = _boot_id()
    os.ftruncate(lock, 0)
    text = json.dumps({"keeper": token, "boot": config["boot"], "mark_base": config["mark_base"]})
    os.pwrite(lock, text.encode(), 0)


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _open_socket(directory: str) -> tuple[socket.socket, Callable[[], None]]:
    """Returns the socket that clients find, and the function that removes it: a supervisor that has
    left need not be asked.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    here = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    path = os.path.join(directory, "sock")
    if os.path.lexists(path):
        os.unlink(path)
    # A socket's path may have about 100 bytes; through the descriptor it is short wherever we live.
    listener.bind(f"/proc/self/fd/{here}/sock" if sys.platform == "linux" else path)
    listener.listen(64)

    def leave() -> None:
        with contextlib.suppress(OSError):  # its directory may be gone by now
            os.unlink("sock", dir_fd=here)

    return listener, leave


def _build_tier(
    config: dict[str, Any],
    directory: str,
    runs: int,
    born: bool,
) -> str:
    """Builds the tier; returns its name for messages. Returns in the process that goes on."""
    places = [] if sys.platform != "linux" else [os.dup(runs), os.open(directory, os.O_RDONLY)]
    state = (spaces.settle_spaces if born else spaces.enter_spaces)(config, directory)
    config["namespaces"] = state.tier == spaces.NAMESPACES
    config["remarks"] = [] if config["namespaces"] else spaces.without_mounts(config)
    _name_volumes(config)
    if not config["namespaces"]:
        return spaces.process_note(state.problem, config["remarks"])
    if not born:
        os.setsid()
    places += spaces.open_places(config)
    if config["per_run_mounts"]:
        config["places"] = places
        return spaces.tier_name()
    spaces.drop_privileges(places)
    for place in places:
        os.close(place)
    return spaces.tier_name()


def _name_volumes(config: dict[str, Any]) -> None:
    """Sets the path of each volume in the config: its mount path, or its real one."""
    config["guest_volumes"] = []
    for volume in config["volumes"]:
        root = volume["mount_path"] if config["namespaces"] else volume["dir"]
        config["guest_volumes"].append({"mount": volume["mount_path"], "root": root})
        config["env"][volume["variable"]] = root


def _clean_environment(variables: dict[str, str]) -> None:
    """Makes the template's environment our own, so that every run is born with it."""
    for name in list(os.environ):
        del os.environ[name]
    os.environ.update(variables)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (clamp_limit(DESCRIPTORS_MAX, hard), hard))


def _prepare_python(config: dict[str, Any], guest: ModuleType) -> None:
    """Does once what every Python task would do again: compile, import what the task imports."""
    config["guest_module"] = guest
    config["guest_sandbox"] = guest.Sandbox(config["guest_volumes"])
    config["compiled"] = None
    if config["mode"] == "python":
        _prepare_tasks(config, guest)
    gc.freeze()


def _prepare_tasks(config: dict[str, Any], guest: ModuleType) -> None:
    _preimport_modules(config["preimport"])
    try:
        config["compiled"] = guest.compile_task(config["code"])
    except (SyntaxError, ValueError):
        config["compiled"] = None  # the task's own process shows the error
    guest.show_source(config["code"])
    sys.argv = ["<task>"]
    # "" is the directory that a task is in, as with `python -c`.
    theirs = [path for path in sys.path if path != HERE]
    asked = filter(None, config["env"].get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = ["", *asked, *theirs]


def _preimport_modules(names: list[str]) -> None:
    """Imports what tasks will import; a name that fails here fails again, visibly, in the task."""
    if not names:
        return
    signal.signal(signal.SIGALRM, _give_up_import)
    signal.alarm(PREIMPORT_S)
    for name in names:
        try:
            importlib.import_module(name)
        except (
            BaseException
        ) as error:  # also SystemExit: no import of a task's may end the supervisor
            os.write(2, f"not imported ahead: {name}: {error!r}\n".encode())
    signal.alarm(0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    gc.collect()


def _give_up_import(*_: object) -> None:
    """Gives up an import that hangs: it may hang in the task, where it can be seen. The next
    supervisor imports no module ahead.
    """
    os._exit(1)


def _send_message(connection: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the caller may have gone
        connection.sendall((json.dumps(message) + "\n").encode())


def _give_up(connection: socket.socket, problem: str) -> NoReturn:
    _send_message(connection, {"problem": problem})
    os._exit(1)
