"""Start of a keeper: from a directory with a config.json to a loop that serves.

Takes the directory's lock (held for as long as it lives: its identity), builds its tier, and says
`ready` or what is wrong on stdout as one JSON line. Called by __main__.py alone.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import io
import json
import os
import resource
import socket
import sys
import time
from types import ModuleType
from typing import Any, NoReturn

from . import procs, spaces
from .begun import Begun
from .child import DESCRIPTORS_MAX, rlimits
from .serve import Keeper

WARM_RUNS = 20  # after so many the interpreter has stopped rewriting its own code
HERE = os.path.dirname(os.path.abspath(__file__))  # on the path because we are run from it
LOCK_WAIT_S = 0.3  # the keeper before us may still be leaving


def main(directory: str) -> None:
    os.umask(0o077)
    lock = _take_lock(directory)
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        config: dict[str, Any] = json.load(file)
    guest = _load_guest(config["guest"])
    token = f"{os.path.basename(directory)}/{os.urandom(8).hex()}"
    runs = os.open(config["runs_dir"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _write_identity(lock, token, config)
    begun = Begun(os.path.join(directory, "begun"), config["boot"])
    listener = _listen(directory)
    try:
        note = _isolate(config, directory, runs)
    except OSError as error:
        _give_up(str(error))
    config["identity"] = {"keeper": token, "boot": config["boot"]}
    config["note"] = note
    _clean_environment(config["env"])
    config["rlimits"] = rlimits(config["limits"])
    _prepare_python(config, guest)
    keeper = Keeper(config, listener, (runs, begun))
    listener.listen(64)  # again, so that the kernel tells clients our process and not our parent's
    _say({"ready": token, "note": note})
    _let_go_of_stdout()
    _forget_own_modules()
    gc.collect()
    gc.freeze()
    keeper.serve()
    spaces.remove_links(config)
    os._exit(0)


def _take_lock(directory: str) -> int:
    lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > deadline:
                _say({"taken": True})
                os._exit(1)
            time.sleep(0.01)


def _write_identity(lock: int, token: str, config: dict[str, Any]) -> None:
    """Who holds the lock, and the range of marks that its processes carry (for whoever finds it
    dead).
    """
    number = int.from_bytes(os.urandom(8), "big") % (procs.KEEPERS - 1) + 1
    config["mark_base"] = number * procs.RUNS_PER_KEEPER
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


def _listen(directory: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    here = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    path = os.path.join(directory, "sock")
    if os.path.lexists(path):
        os.unlink(path)
    # A socket's path may have about 100 bytes; through the descriptor it is short wherever we live.
    listener.bind(f"/proc/self/fd/{here}/sock" if sys.platform == "linux" else path)
    listener.listen(64)
    os.close(here)
    return listener


def _isolate(config: dict[str, Any], directory: str, runs: int) -> str:
    """Build the tier; its name for people. Returns in the process that goes on."""
    places = [] if sys.platform != "linux" else [os.dup(runs), os.open(directory, os.O_RDONLY)]
    state = spaces.enter(config, directory)
    config["namespaces"] = state.tier == spaces.NAMESPACES
    config["remarks"] = [] if config["namespaces"] else spaces.without_mounts(config)
    _name_volumes(config)
    if not config["namespaces"]:
        return spaces.process_note(state.problem, config["remarks"])
    os.setsid()
    places += spaces.open_places(config)
    if config["per_run_mounts"]:
        config["places"] = places
        return spaces.tier_name()
    spaces.confine(places)
    for place in places:
        os.close(place)
    return spaces.tier_name()


def _name_volumes(config: dict[str, Any]) -> None:
    """Where each volume is found: at its mount path, or where it really is."""
    config["guest_volumes"] = []
    for volume in config["volumes"]:
        root = volume["mount_path"] if config["namespaces"] else volume["dir"]
        config["guest_volumes"].append({"mount": volume["mount_path"], "root": root})
        config["env"][volume["variable"]] = root


def _load_guest(path: str) -> ModuleType:
    guest = ModuleType("fleetctl_guest")
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), guest.__dict__)  # noqa: S102 - our own file
    return guest


def _clean_environment(variables: dict[str, str]) -> None:
    """Make the template's environment our own, so that every run is born with it."""
    for name in list(os.environ):
        del os.environ[name]
    os.environ.update(variables)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS_MAX, hard))


def _prepare_python(config: dict[str, Any], guest: ModuleType) -> None:
    """Do once what every Python task would do again: compile, warm up, import what the task
    imports.
    """
    config["guest_module"] = guest
    config["guest_sandbox"] = guest.Sandbox(config["guest_volumes"])
    config["compiled"] = None
    if config["mode"] != "python":
        return
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, encoding="utf-8", errors="backslashreplace")
    _preimport(config["preimport"])
    try:
        config["compiled"] = guest.compile_task(config["code"])
    except (SyntaxError, ValueError):
        config["compiled"] = None  # the task's own process shows the error
    _warm_up(guest)
    guest.show_source(config["code"])
    sys.argv = ["<task>"]
    # "" is the directory that a task is in, as with `python -c`.
    theirs = [path for path in sys.path if path != HERE]
    asked = filter(None, config["env"].get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = ["", *asked, *theirs]


def _warm_up(guest: ModuleType) -> None:
    """Run one task here: what it imports and touches first is then shared by all that are
    forked.
    """
    main = sys.modules["__main__"]
    sandbox = guest.Sandbox([])
    for _ in range(WARM_RUNS):
        sandbox.run("SUBMIT(warm=[1, 2.5, None])", {"a": 1}, json.dumps)
    sys.modules["__main__"] = main
    # Not `threading`: what it does after a fork costs each task more than the rest of its start.
    for name in ("atexit", "linecache", "traceback"):
        importlib.import_module(name)


def _forget_own_modules() -> None:
    """So that a task's own module named like one of ours is found."""
    ours = (__name__.partition(".")[0], "fleetctl")
    for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
        del sys.modules[name]


def _preimport(names: list[str]) -> None:
    """Import what tasks will import; a name that fails here fails again, visibly, in the task."""
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException as error:  # also SystemExit: no import of a task's may end the keeper
            os.write(2, f"not imported ahead: {name}: {error!r}\n".encode())


def _let_go_of_stdout() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def _say(message: dict[str, Any]) -> None:
    os.write(1, (json.dumps(message) + "\n").encode())


def _give_up(problem: str) -> NoReturn:
    _say({"problem": problem})
    os._exit(1)
