"""The program of a batch job: begins the runs that are ordered in the box's directory, on the node
that the scheduler chose, until its supervisor has ended.

All words go through the directory that the login and the nodes share: orders and stops come as
files, and journals and logs are read where they are written. It needs no network.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from typing import Any, Callable, Dict

from fleetctl.providers.machines.shipped import containers, engines
from fleetctl.providers.machines.shipped.boxes import (
    BEGIN_S,
    KILL,
    LEFT,
    READY,
    BoxError,
    Boxes,
    remove_tree,
    supervisor_of,
)
from fleetctl.providers.machines.shipped.environments import address_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Mapping

LOOK_S = 0.1
INBOX = "inbox"
LEASH = "leash"  # as fleetctl/guest/remote/place.py names it
TAKEN_S = 30.0  # for an order to be taken
SETTLE_S = 5.0  # between an order and its supervisor


class Allocation:
    def __init__(self, root: str, guest: str, name: str) -> None:
        self._boxes = Boxes(root)
        self._guest = guest
        self._name = name
        self._path = self._boxes.path(name)
        self._inbox = os.path.join(self._path, INBOX)
        self._asked_to_end = False
        self._busy_until_s = time.monotonic() + BEGIN_S
        self._left = False

    def serve(self) -> None:
        signal.signal(signal.SIGTERM, self._note_term)
        box = self._boxes.read(self._name)
        if box is None:
            return
        links = box.get("mounts", [])
        for link in links:
            self._boxes.make_link(link["path"], link["target"], [])
        os.makedirs(self._inbox, 0o700, exist_ok=True)
        try:
            if box.get("container") and not self._contain(box["container"]["image"]):
                return
            self._take_orders(box.get("interface", ""))
            while self._look(box):
                time.sleep(LOOK_S)
        finally:
            remove_tree(self._inbox)  # no order is taken any more
            self._boxes.kill(self._name)
            # Before its links go: of two jobs that end together, each finds the other gone.
            with open(os.path.join(self._path, LEFT), "w", encoding="utf-8"):
                pass  # the job may go on, with the other nodes of the run
            self._boxes.remove_links(self._name, {"links": links})

    def _take_orders(self, interface: str) -> None:
        """Shows that orders are taken from now on, at this address."""
        ready = os.path.join(self._path, READY)
        with open(f"{ready}.new", "w", encoding="utf-8") as file:
            file.write(address_of(interface) if interface else os.uname().nodename)
        os.replace(f"{ready}.new", ready)
        self._busy_until_s = time.monotonic() + BEGIN_S

    def _contain(self, image: str) -> bool:
        """Starts the container of the box; returns whether it is there. It ends with this process,
        also where that is killed: the scheduler knows nothing of containers.
        """
        engines.sweep_containers(self._boxes.root, self._boxes.list_containers)
        self._boxes.note_beginning(self._name, note=f"pulling image `{image}`")
        os.makedirs(self._state, 0o700, exist_ok=True)
        path = os.path.join(self._state, LEASH)
        leash = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(leash, fcntl.LOCK_EX)
        try:
            containers.start_container(
                self._boxes, self._name, guest=self._guest, gpus=list_own_gpus(os.environ)
            )
        except (BoxError, OSError) as error:
            sort = error.sort if isinstance(error, BoxError) else "machine"
            self._boxes.note_beginning(self._name, fault=str(error), sort=sort)
            return False
        return True

    def _note_term(self, *_: Any) -> None:
        self._asked_to_end = True

    def _look(self, box: Any) -> bool:
        """Does what is due; returns whether the job goes on."""
        if os.path.exists(os.path.join(self._path, KILL)) or not os.path.exists(self._inbox):
            return False
        for entry in sorted(os.listdir(self._inbox)):
            if entry.endswith(".json"):
                self._obey(box, os.path.join(self._inbox, entry))
        held, _ = supervisor_of(self._path)
        if self._asked_to_end and not self._left:
            self._left = True
            self._fork(["leave", "--dir", self._state, "--why", "SandboxEnded"], "", "")
        now_s = time.monotonic()
        if held:
            self._busy_until_s = now_s
        return held or (now_s < self._busy_until_s and not self._asked_to_end)

    @property
    def _state(self) -> str:
        return os.path.join(self._path, "state")

    def _obey(self, box: Any, path: str) -> None:
        try:
            with open(path, encoding="utf-8") as file:
                request = json.load(file)
            os.unlink(path)
        except (OSError, ValueError):
            return  # a shared directory may show a file before it has it
        words = [request["verb"], "--dir", self._state, "--run", request["run"]]
        if request["verb"] == "stop":
            self._fork([*words, "--grace", str(request["grace_s"])], "", "")
            return
        self._busy_until_s = time.monotonic() + SETTLE_S
        if box.get("container") and supervisor_of(self._path)[1] < 0:
            order = request["order"].encode()
            cores = sorted(os.sched_getaffinity(0))
            job = {name: text for name, text in os.environ.items() if name.startswith("SLURM_")}
            given = {**job, **request["secrets"]}
            containers.hand_order(self._boxes, self._name, order, given, cores)
            return
        environment = {**os.environ, "HOME": os.path.join(self._path, "home")}
        environment.update(request["secrets"])
        python = box["python"]
        if python:
            environment["PATH"] = f"{os.path.dirname(python)}:{environment['PATH']}"
        words += ["--order", "-", "--for", "0.05"]
        self._fork(words, request["order"], python, environment)

    def _fork(self, words: List[str], given: str, python: str, environment: Any = None) -> None:
        """Does a verb of the guest in a process of its own, and waits for it."""
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            return
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            handle = os.memfd_create("order")
            os.write(handle, given.encode())
            os.lseek(handle, 0, 0)
            os.dup2(handle, 0)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.closerange(3, 4096)
            if environment is not None:
                os.environ.clear()
                os.environ.update(environment)
            if python:
                os.execv(python, [python, "-I", "-S", self._guest, *words])
            from fleetctl.guest.remote.main import main

            main(["guest", *words])
        finally:
            os._exit(0)


def list_own_gpus(environment: Mapping[str, str]) -> List[int]:
    """Returns the indexes of the GPUs that the scheduler gave this job."""
    names = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")
    text = next((environment[name] for name in names if environment.get(name)), "")
    return [int(it) for it in text.split(",") if it.isdigit()]


def post(agent: Any, request: Any, _: bytes) -> int:
    """Hands a request to the program of a box, on the login. An order whose run has begun needs no
    program any more.
    """
    path = os.path.join(agent.boxes.path(request["box"]), INBOX)
    latch = os.path.join(os.path.dirname(path), "state", "runs", f"{request.get('awaits')}.begun")
    if agent.boxes.read(request["box"]) is not None and os.path.exists(latch):
        os.write(1, b'{"ok": true}')
        return 0
    if agent.boxes.read(request["box"]) is None or not os.path.isdir(path):
        os.write(1, b'{"ok": false}')
        return 0
    name = f"{time.time():.6f}.{os.getpid()}"
    with open(os.path.join(path, f".{name}"), "w", encoding="utf-8") as file:
        json.dump(request["request"], file)
    os.rename(os.path.join(path, f".{name}"), os.path.join(path, f"{name}.json"))
    until_s = time.monotonic() + TAKEN_S
    while request.get("awaits") and os.path.isdir(path) and time.monotonic() < until_s:
        if os.path.exists(latch):
            break
        time.sleep(LOOK_S / 2)
    os.write(1, b'{"ok": true}')
    return 0


def run(_: Any, request: Any, __: bytes) -> int:
    """Runs a program of the scheduler on the login; writes its output and code."""
    import subprocess

    try:
        done = subprocess.run(
            request["argv"],
            input=request.get("input", "").encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=request["deadline_s"],
            check=False,
        )
        reply = {
            "exit": done.returncode,
            "out": done.stdout.decode("utf-8", "replace"),
            "said": done.stderr.decode("utf-8", "replace").strip(),
        }
    except FileNotFoundError:
        reply = {"exit": 127, "out": "", "said": f"{request['argv'][0]} is not installed"}
    except subprocess.TimeoutExpired:
        reply = {"exit": 124, "out": "", "said": f"{request['argv'][0]} does not answer"}
    view = memoryview(json.dumps(reply).encode())
    while view:
        view = view[os.write(1, view) :]
    return 0


def drop(agent: Any, request: Any, _: bytes) -> int:
    """Removes the box of an ended job; or with `kill` asks its program to end at once."""
    path = agent.boxes.path(request["box"])
    box = agent.boxes.read(request["box"])
    if box is not None and request["kill"]:
        with open(os.path.join(path, KILL), "w", encoding="utf-8"):
            pass
    elif box is not None:
        name = request["box"].partition("@")[0]
        away = agent.boxes.put_away("%s@%s" % (name, box["id"]))
        os.rename(path, away)
        # A result as the task wrote it may hold its secret; the journal has it masked.
        remove_tree(os.path.join(away, "state", "files"))
    os.write(1, b'{"ok": true}')
    return 0


VERBS: Dict[str, Callable[[Any, Any, bytes], int]] = {"post": post, "run": run, "drop": drop}
