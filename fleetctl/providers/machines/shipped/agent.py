"""The agent: serves one controller over its standard input and output, on a machine or a login.

Requests and replies are frames: a line of JSON, whose `size` is the number of bytes that follow it.
A slow request runs in a forked process: its output comes as frames with the number of the request,
and its exit code ends them. The agent exits when its line is closed; runs belong to supervisors
that it forked.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import select
import time
from contextlib import suppress

from fleetctl.providers.machines.shipped import (
    allocation,
    containers,
    engines,
    environments,
    machine_files,
    warden,
)
from fleetctl.providers.machines.shipped.boxes import (
    KILL,
    LEFT,
    LIVING,
    BoxError,
    Boxes,
    supervisor_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, NoReturn, Optional

    Request = Dict[str, Any]

READ_BYTES = 256 * 1024
AHEAD_BYTES_MAX = 4 * 1024 * 1024  # of a child's input that it has not read
LOOK_S = 20.0
SILENT_S = 3600.0  # that a line may be silent: a controller reports its presence far more often
DESCRIPTORS_MAX = 4096
GONE, CLOSED, FAILED = 97, 98, 99  # exit codes of a forked request
_SSH = ("SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_AUTH_SOCK", "SSH_ORIGINAL_COMMAND")
EOF = b'{"e":"eof"}\n'  # ends the frames of a run; see fleetctl/guest/remote/stream.py


class Child:
    """A forked request. output: its standard output; input: its standard input, once wanted;
    attached: it is a run's follower, or has become the supervisor of a box.
    """

    def __init__(self, pid: int, output: int, given: int, *, attached: bool) -> None:
        self.pid = pid
        self.attached = attached
        self.tail = b""  # of its output
        self.output = output
        self.given = given
        self.ahead = b""
        self.closing = False


class Agent:
    def __init__(self, root: str, guest: str) -> None:
        """guest: the path of the guest as one file."""
        self.boxes = Boxes(root)
        self.guest = guest
        self._devices: Optional[List[str]] = None
        self._fleet, self._lease_s = "", 0.0
        self._children: Dict[int, Child] = {}
        self._staying: List[int] = []  # supervisors whose runs were followed to their end
        self._poll = select.poll()
        self._of: Dict[int, int] = {}  # descriptor -> number of a request
        self._rest = b""
        self._heard_at_s = time.monotonic()
        self._base = {name: text for name, text in os.environ.items() if name not in _SSH}

    def serve(self) -> None:
        """Serves until the line ends, or is silent for too long."""
        environments.import_ahead()
        gc.freeze()  # in a forked process, collecting these objects would copy all of their pages
        self._poll.register(0, select.POLLIN)
        while time.monotonic() - self._heard_at_s < SILENT_S:
            for handle, _ in self._poll.poll(LOOK_S * 1000):
                if handle == 0:
                    if not self._read_requests():
                        return
                elif handle in self._of:
                    self._turn(handle)
            self._staying = [pid for pid in self._staying if not os.waitpid(pid, os.WNOHANG)[0]]

    def _renew(self) -> None:
        warden.detach(self.boxes.sweep)
        if self._fleet:
            warden.renew_lease(self.boxes.root, self._fleet, self._lease_s)
        if self._fleet and self.boxes.names():
            warden.ensure_warden(self.boxes)

    # -- the line ----------------------------------------------------------------------------------

    def _read_requests(self) -> bool:
        data = os.read(0, READ_BYTES)
        if not data:
            return False
        self._heard_at_s = time.monotonic()
        self._rest += data
        while True:
            line, found, rest = self._rest.partition(b"\n")
            if not found:
                return True
            request: Request = json.loads(line)
            size = request.get("size", 0)
            if len(rest) < size:
                return True
            self._rest = rest[size:]
            self._obey(request, rest[:size])

    def _reply(self, number: int, data: bytes = b"", **fields: Any) -> None:
        frame = {"id": number, **fields}
        if data:
            frame["size"] = len(data)
        view = memoryview(json.dumps(frame, separators=(",", ":")).encode() + b"\n" + data)
        while view:
            view = view[os.write(1, view) :]

    def _obey(self, request: Request, data: bytes) -> None:
        number = request["id"]
        op = request["op"]
        if op in ("input", "close", "cancel"):
            self._feed(number, op, data)
            return
        try:
            reply = _AT_ONCE[op](self, request) if op in _AT_ONCE else None
            if reply is not None:
                self._reply(number, done=0, **reply)
            else:
                self._fork(number, _FORKED[op], request, data)
        except BoxError as error:
            self._reply(number, done=FAILED, error=error.sort, message=str(error))
        except OSError as error:
            self._reply(
                number, done=FAILED, error="machine", message=explain(error, self.boxes.root)
            )

    # -- forked requests ---------------------------------------------------------------------------

    def _fork(
        self,
        number: int,
        work: Callable[[Agent, Request, bytes], int],
        request: Request,
        data: bytes,
    ) -> None:
        output, written = os.pipe()
        read, given = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become(work, request, data, read, written)
        os.close(written)
        os.close(read)
        os.set_blocking(given, False)
        self._children[number] = Child(pid, output, given, attached=work is attach)
        self._of[output] = number
        self._poll.register(output, select.POLLIN)

    def _become(
        self,
        work: Callable[[Agent, Request, bytes], int],
        request: Request,
        data: bytes,
        read: int,
        written: int,
    ) -> NoReturn:
        code = FAILED
        try:
            os.dup2(read, 0)
            os.dup2(written, 1)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            os.closerange(3, DESCRIPTORS_MAX)
            gc.disable()  # requests are short, and a worker turns it on again for its tasks
            try:
                code = work(self, request, data)
            except BoxError as error:
                _write_reply({"error": error.sort, "message": str(error)})
            except OSError as error:
                _write_reply({"error": "machine", "message": explain(error, self.boxes.root)})
        finally:
            os._exit(code)

    def _turn(self, handle: int) -> None:
        """Passes a child's output on, or more input to it."""
        number = self._of[handle]
        child = self._children[number]
        if handle == child.given:
            self._pour(number, child)
            return
        data = os.read(handle, READ_BYTES)
        if data:
            child.tail = (child.tail + data)[-len(EOF) :]
            self._reply(number, data)
            return
        self._drop(number)
        if child.attached and child.tail == EOF:
            self._staying.append(child.pid)  # a supervisor may wait for the next run of its box
            self._reply(number, done=0)
            return
        _, status = os.waitpid(child.pid, 0)
        self._reply(number, done=_exit_code(status))

    def _drop(self, number: int) -> None:
        child = self._children.pop(number)
        for one in (child.output, child.given):
            self._forget(one)

    def _forget(self, handle: int) -> None:
        if handle < 0:
            return
        if self._of.pop(handle, None) is not None:
            self._poll.unregister(handle)
        os.close(handle)

    def _feed(self, number: int, op: str, data: bytes) -> None:
        child = self._children.get(number)
        if child is None:
            return
        if op == "cancel" and child.attached:
            self._drop(number)  # a follower leaves then, and a supervisor works on
            self._staying.append(child.pid)
            return
        if op == "cancel":
            os.kill(child.pid, 15)
            return
        child.ahead += data
        child.closing = child.closing or op == "close"
        self._pour(number, child)

    def _pour(self, number: int, child: Child) -> None:
        if child.given < 0:
            return
        try:
            while child.ahead:
                child.ahead = child.ahead[os.write(child.given, child.ahead[:READ_BYTES]) :]
        except BlockingIOError:
            if child.given not in self._of:
                self._of[child.given] = number
                self._poll.register(child.given, select.POLLOUT)
            return
        except BrokenPipeError:
            child.ahead = b""
            child.closing = True
        if self._of.pop(child.given, None) is not None:
            self._poll.unregister(child.given)
        if child.closing:
            os.close(child.given)
            child.given = -1

    # -- requests that are served at once ----------------------------------------------------------

    def hello(self, request: Request) -> Request:
        """Notes whose controller this is and returns the machine's facts."""
        self._fleet, self._lease_s = request.get("fleet", ""), request["lease_s"]
        if self._fleet:
            warden.note_lease(self.boxes.root, self._fleet, self._lease_s)
        warden.detach(self._sweep_containers)
        found = environments.find_facts(self.boxes.root, self.devices, request.get("engine", []))
        return {**found, "address": _own_address(request.get("interface", ""))}

    def here(self, _: Request) -> Request:
        """Takes a beat of the controller."""
        self._renew()
        return {}

    def _sweep_containers(self) -> None:
        engines.sweep_containers(self.boxes.root, self.boxes.list_containers, every_s=0.0)

    @property
    def devices(self) -> List[str]:
        """The names of the machine's GPUs, by index; asked once a line."""
        if self._devices is None:
            self._devices = environments.list_gpus()
        return self._devices

    def make(self, request: Request) -> Request:
        order = request["order"]
        devices = self.devices[: order["size"]["gpus"]]
        box = self.boxes.make(request["box"], order, devices)
        if not warden.is_held(self.boxes.root):
            self._renew()
        return {"box": box}

    def look(self, request: Request) -> Request:
        box = self.boxes.read(request["box"])
        state = self.boxes.state(request["box"], box) if box is not None else "gone"
        about: Request = {"tags": {}}
        if box is not None:
            enter = containers.enter_words(request["box"], box)
            about = {"tags": box["tags"], "box_id": box["id"], "enter": enter}
        left = os.path.exists(os.path.join(self.boxes.path(request["box"]), LEFT))
        address = self.boxes.address(request["box"])
        beginning = self.boxes.beginning(request["box"])
        return {"state": state, "address": address, "left": left, **beginning, **about}

    def list_boxes(self, _: Request) -> Request:
        found = [
            {"box": f"{name}@{box['id']}", "tags": box["tags"]} for name, box in self.boxes.living()
        ]
        return {"boxes": found}

    def list_all(self, _: Request) -> Request:
        """Returns all boxes, whoever decides which of them live, and those that ended lately.
        `ending`: whether the end was asked for.
        """
        found = [(name, self.boxes.read(name)) for name in self.boxes.names()]
        boxes = [
            {
                "box": f"{name}@{it['id']}",
                "tags": it["tags"],
                "ending": os.path.exists(os.path.join(self.boxes.path(name), KILL)),
            }
            for name, it in found
            if it
        ]
        ended = [{"box": name, "tags": it["tags"]} for name, it in self.boxes.ended()]
        return {"boxes": boxes, "ended": ended}

    def end(self, request: Request) -> Optional[Request]:
        """Ends a box that no process is left of; None for one with something to wait for."""
        ended = self.boxes.is_left(request["box"]) and self.boxes.end(request["box"], waits=False)
        return {"ok": True} if ended else None

    def change(self, request: Request) -> Request:
        return {"ok": self.boxes.change(request["box"], request["fields"])}

    # -- the environment of work -------------------------------------------------------------------

    def surround(self, box: Request, path: str, secrets: Dict[str, str]) -> None:
        """Sets the variables that the runs of a box begin with, and their cores."""
        if box.get("cores"):
            with suppress(OSError):  # they were taken from this user since
                os.sched_setaffinity(0, box["cores"])
        known = {**self._base, "HOME": os.path.join(path, "home"), "LANG": "C.UTF-8"}
        known.update(secrets)
        if box["python"]:
            known["PATH"] = f"{os.path.dirname(box['python'])}:{known.get('PATH', os.defpath)}"
            known["VIRTUAL_ENV"] = os.path.dirname(os.path.dirname(box["python"]))
        if box["hides_gpus"]:
            known["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, box["gpus"]))
        os.environ.clear()
        os.environ.update(known)


def _own_address(interface: str) -> str:
    """Returns how other machines reach this one: by an interface, or as this login did."""
    if interface:
        return environments.address_of(interface)
    login = os.environ.get("SSH_CONNECTION", "").split()
    return login[2] if len(login) > 2 else os.uname().nodename


def _write_reply(reply: Request) -> None:
    os.write(1, json.dumps(reply).encode())


def explain(error: OSError, root: str) -> str:
    where = f"`{error.filename}`: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}the disk that holds `{root}` is full"
    return f"{where}{error.strerror or error}"


# -- forked requests -------------------------------------------------------------------------------


def attach(agent: Agent, request: Request, order: bytes) -> int:
    """Begins a run, or follows it. The payload is its order, or nothing."""
    name = request["box"]
    gate = agent.boxes.enter_gate(name, alone=False) if order else -1
    box = agent.boxes.read(name)
    path = agent.boxes.path(name)
    if box is None:
        path = agent.boxes.put_away(name)
        if order or not os.path.exists(path):
            return GONE
        box = {"python": "", "hides_gpus": False}
    state = os.path.join(path, "state")
    latch = os.path.join(state, "runs", f"{request['run']}.begun")
    begins = order and not os.path.exists(latch)
    if begins and agent.boxes.state(name, box) not in LIVING:
        return CLOSED
    if not order and not os.path.exists(state):
        os.write(1, b'{"e":"unbegun"}\n')
        return 4
    secrets = request.get("secrets", {})
    if begins and box.get("container") and supervisor_of(path)[1] < 0:
        if not containers.hand_order(agent.boxes, name, order, secrets, box["cores"]):
            return CLOSED
        os.close(gate)  # its supervisor has its lock
        order = b""
    agent.surround(box, path, secrets)
    words = ["attach", "--dir", state, "--run", request["run"], *request["words"]]
    if order:
        # Until a supervisor has its lock, the gate alone keeps the box from being ended.
        os.set_inheritable(gate, True)
        words += ["--stay", "yes", "--gate", str(gate)]
        handle = os.memfd_create("order")
        os.write(handle, order)
        os.lseek(handle, 0, 0)
        os.dup2(handle, 0)
        os.close(handle)
        words += ["--order", "-"]
    return _run_guest_verb(agent, box["python"], words)


def _exit_code(status: int) -> int:
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def stop(agent: Agent, request: Request, _: bytes) -> int:
    box = agent.boxes.read(request["box"])
    state = os.path.join(agent.boxes.path(request["box"]), "state")
    if box is None or not os.path.exists(state):
        return 0
    words = ["stop", "--dir", state, "--run", request["run"], "--grace", str(request["grace_s"])]
    return _run_guest_verb(agent, "", words)


def relay(agent: Agent, request: Request, _: bytes) -> int:
    box = agent.boxes.read(request["box"])
    if box is None or agent.boxes.state(request["box"], box) != "live":
        return GONE
    state = os.path.join(agent.boxes.path(request["box"]), "state")
    return _run_guest_verb(agent, "", ["relay", "--dir", state, "--run", request["run"]])


def end(agent: Agent, request: Request, _: bytes) -> int:
    _write_reply({"ok": agent.boxes.end(request["box"])})
    return 0


def start_container(agent: Agent, request: Request, _: bytes) -> int:
    """Starts the container of a box, with its image."""
    name = request["box"]
    box = agent.boxes.read(name) or {"gpus": []}
    if not box.get("container"):
        agent.boxes.change(name, {"container": request["container"]})
    gpus = box["gpus"]
    containers.start_container(agent.boxes, name, guest=agent.guest, gpus=gpus)
    _write_reply({})
    return 0


def _run_guest_verb(agent: Agent, python: str, words: List[str]) -> int:
    """Does a verb of the guest in this process, or becomes the Python of an image for it."""
    if python:
        os.execv(python, [python, "-I", "-S", agent.guest, *words])
    from fleetctl.guest.remote.main import main

    return main(["guest", *words])


_AT_ONCE: Dict[str, Callable[[Agent, Request], Optional[Request]]] = {
    "hello": Agent.hello,
    "here": Agent.here,
    "make": Agent.make,
    "look": Agent.look,
    "list": Agent.list_boxes,
    "all": Agent.list_all,
    "change": Agent.change,
    "end": Agent.end,
}
_FORKED = {
    "attach": attach,
    "stop": stop,
    "relay": relay,
    "end": end,
    "contain": start_container,
    "environment": environments.build,
    **machine_files.VERBS,
    **allocation.VERBS,
}
