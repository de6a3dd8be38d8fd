"""Leads one session of an interpreter: builds the tier, starts the driver, and ends everything.

Started by `python -c` from the provider's local_session.py, under the Python of an image. It sits
between the host and the driver only as a guard: the driver has the host's pipes itself. When the
host closes its end of the life pipe (also by dying), when the driver ends or when the session's
time is over, every process of the session is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any, NoReturn, Optional

from fleetctl.guest.supervision.processes import carry_mark, reap_children, send_signal

from .isolation import sharedlinks, spaces, syscalls
from .run import procs
from .run.child import compute_rlimits

REAP_PAUSE_S = 0.01


def main(
    config_from: int,
    life: int,
    lock: int,
) -> NoReturn:
    """The arguments are inherited descriptors. Says {"ready": tier, "root"} or {"problem", "tier"}
    on stdout, and {"ended": why} as its last line.
    """
    for descriptor in (life, lock):
        os.set_inheritable(descriptor, False)
    with os.fdopen(config_from, "rb") as source:
        config: dict[str, Any] = json.load(source)
    os.umask(0o077)
    try:
        note = _build_tier(config)
    except OSError as error:
        tier = config["tier"] if config["tier"] != "auto" else ""
        _write_message(1, {"problem": str(error), "tier": tier})
        os._exit(1)
    out = os.dup(1)
    root = config["volumes"][0]["root"] if config["volumes"] else ""
    _write_message(out, {"ready": note, "root": root})
    guard = SessionGuard(config, life)
    guard.start()
    why = guard.watch()
    guard.end_all()
    sharedlinks.release_links(config, config["directory"])
    _write_message(out, {"ended": why})
    os._exit(0)


class SessionGuard:
    """Watches over the driver and all that it starts."""

    def __init__(self, config: dict[str, Any], life: int) -> None:
        self._config = config
        self._life = life
        self._driver = 0
        self._status: Optional[int] = None
        self._until_s = time.monotonic() + config["lifetime_s"]
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._woken, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def start(self) -> None:
        self._driver = os.fork()
        if self._driver == 0:
            try:
                self._become_driver()
            except OSError as error:
                os.write(2, f"the driver cannot be started: {error}\n".encode())
            os._exit(127)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)

    def watch(self) -> str:
        """Waits until the session has ended; returns the reason."""
        poller = select.poll()
        poller.register(self._life, select.POLLIN)
        poller.register(self._woken, select.POLLIN)
        while True:
            left_s = self._until_s - time.monotonic()
            if left_s <= 0:
                return f"its lifetime of {self._config['lifetime_s']:g} s has passed"
            ready = [descriptor for descriptor, _ in poller.poll(left_s * 1000)]
            if self._life in ready:
                return "it was stopped"
            self._reap()
            if self._status is not None:
                return _describe_ending(self._status)

    def end_all(self) -> None:
        """Kills until no process is left: a process that is being killed may just have forked."""
        while True:
            if self._config["namespaces"]:
                left = send_signal(-1, signal.SIGKILL)
            else:
                found = procs.find_marked(self._config["mark"], self._config["mark"] + 1)
                procs.kill_all(found)
                left = bool(found)
                if sys.platform != "linux" and self._status is None:
                    left = send_signal(-self._driver, signal.SIGKILL)
            self._reap()
            if not left:
                return
            time.sleep(REAP_PAUSE_S)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it may be the clock that woke us
            os.read(self._woken, 4096)
        for pid, status in reap_children():
            if pid == self._driver:
                self._status = status

    def _become_driver(self) -> None:
        os.setsid()
        os.umask(0o022)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        for which, value in compute_rlimits(self._config["limits"]):
            resource.setrlimit(which, (value, value))
        if sys.platform == "linux":
            mark = self._config["mark"]
            carry_mark(mark)
            if not self._config["namespaces"]:
                syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.chdir(self._config["work_dir"])
        command = self._config["command"]
        os.execve(command[0], command, self._config["env"])  # no shell is the point


def _build_tier(config: dict[str, Any]) -> str:
    """Builds the tier; returns its name for messages. Returns in the process that goes on."""
    state = spaces.enter_spaces(config, config["directory"])
    config["namespaces"] = state.tier == spaces.NAMESPACES
    remarks = [] if config["namespaces"] else _link_volumes(config)
    for volume in config["volumes"]:
        volume["root"] = volume["mount_path"] if config["namespaces"] else volume["dir"]
        config["env"][volume["variable"]] = volume["root"]
    if not config["namespaces"]:
        return spaces.process_note(state.problem, remarks)
    os.setsid()
    places = spaces.open_places(config)
    spaces.drop_privileges(places)
    for place in places:
        os.close(place)
    return spaces.tier_name()


def _link_volumes(config: dict[str, Any]) -> list[str]:
    """Links volumes to their paths. A directory that goes with the sandbox needs no link: it is at
    its path in namespaces only.
    """
    kept = {**config, "volumes": [one for one in config["volumes"] if not one["fleeting"]]}
    remarks = sharedlinks.make_links(kept, config["directory"])
    config["made_links"] = kept["made_links"]
    return remarks


def _describe_ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"its process was ended by signal {os.WTERMSIG(status)}"
    return f"its process exited with code {os.WEXITSTATUS(status)}"


def _write_message(out: int, message: dict[str, Any]) -> None:
    """Writes a message on a line of its own: the driver may have died in the middle of a line."""
    try:
        os.write(out, ("\n" + json.dumps(message) + "\n").encode())
    except OSError:
        return  # no reader any more
