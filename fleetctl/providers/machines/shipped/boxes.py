"""The boxes of a machine: a directory and claims for each sandbox, of all stores that work there.

Runs on the machine, in the agent and in what it forks. A box holds a slot, cores, memory, GPUs and
paths for as long as it is new or its supervisor lives; one lock orders all claims. It is found by
its name alone, and is never used again once its supervisor has ended or the machine has restarted.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import time

from fleetctl.providers.machines.shipped import engines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

    Box = Dict[str, Any]

BEGIN_S = 900.0  # that a box may wait for its first order
LOCK_S = 60.0  # that a supervisor may take to lock its file; on a full disk it never does
KEEP_S = 30.0  # the files of a box that has ended
KILL_S = 10.0  # for killed processes to be gone
BUSY = -2  # in place of a descriptor of a gate
KILL = "kill"  # the file of a box that its owner wants gone at once
LEFT = "left"  # the file of a box whose allocation has ended its work
READY = "ready"  # the file of a box whose allocation takes orders
BEGINNING = "beginning.json"  # the file of a box whose allocation does not take orders yet
LIVING = ("new", "live")


class BoxError(Exception):
    """A claim that fails. sort: `full` may change by itself, `never` does not, `path` is about the
    user's files.
    """

    def __init__(self, sort: str, message: str) -> None:
        super().__init__(message)
        self.sort = sort


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def now_s() -> float:
    """Returns seconds since the machine started, which no setting of its clock changes."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Boxes:
    """root: the directory of all that fleetctl keeps on this machine."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._directory = os.path.join(root, "boxes")
        os.makedirs(self._directory, 0o700, exist_ok=True)

    def path(self, name: str) -> str:
        """Returns the directory of a box. name: of a box, with or without `@` and its id, as in
        all that follows.
        """
        name = name.partition("@")[0]
        if not name or "/" in name or name.startswith("."):
            raise BoxError("never", f"`{name}` is no name of a sandbox")
        return os.path.join(self._directory, name)

    def read(self, name: str) -> Optional[Box]:
        """Returns what was written down of a box; None when there is no such box, or another one
        has its name.
        """
        try:
            with open(os.path.join(self.path(name), "box.json"), encoding="utf-8") as file:
                found: Box = json.load(file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        wanted = name.partition("@")[2]
        return found if wanted in ("", found["id"]) else None

    def address(self, name: str) -> str:
        """Returns the address of the machine that an allocation gave a box; "" before that."""
        try:
            with open(os.path.join(self.path(name), READY), encoding="utf-8") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return ""

    def beginning(self, name: str) -> Dict[str, str]:
        """Returns what an allocation does before it takes orders, as `note`, or why it never will,
        as `fault` and its `sort`.
        """
        try:
            with open(os.path.join(self.path(name), BEGINNING), encoding="utf-8") as file:
                found: Dict[str, str] = json.load(file)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return {}
        return found

    def note_beginning(self, name: str, **fields: str) -> None:
        path = os.path.join(self.path(name), BEGINNING)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(fields, file)
        os.replace(f"{path}.new", path)

    def names(self) -> List[str]:
        return sorted(name for name in os.listdir(self._directory) if not name.startswith("."))

    def living(self) -> Iterator[Tuple[str, Box]]:
        for name in self.names():
            box = self.read(name)
            if box is not None and self.state(name, box) in LIVING:
                yield name, box

    def state(self, name: str, box: Optional[Box] = None) -> str:
        """Returns `gone`, `new`, `live`, `stale` (never begun in time), `restarted` (with the
        machine), `expired` (ended by its lease), or `over`.
        """
        box = box or self.read(name)
        if box is None:
            return "gone"
        path = self.path(name)
        if os.path.exists(os.path.join(path, "expired")):
            return "expired"
        if box["boot"] != boot_id():
            return "restarted"
        young = now_s() - box["at"] < BEGIN_S
        held, size = supervisor_of(path)
        if size < 0:
            return "new" if young else "stale"
        # A file that is neither locked nor written is about to be locked by its creator.
        fresh = size == 0 and 0 <= time.time() - _changed_at_s(path) < LOCK_S
        return "live" if held or fresh else "over"

    def lock(self) -> int:
        """Returns the descriptor that holds the lock of all claims until it is closed."""
        handle = os.open(
            os.path.join(self.root, "claims.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        fcntl.flock(handle, fcntl.LOCK_EX)
        return handle

    # -- making ------------------------------------------------------------------------------------

    def make(self, name: str, order: Box, devices: List[str]) -> Box:
        """Makes the box, or returns the one of that name. devices: names of all GPUs, by index.
        Raises BoxError.
        """
        handle = self.lock()
        try:
            known = self.read(name)
            if known is not None:
                return known
            others = list(self.living())
            claims = [box for _, box in others]
            box = {
                "id": order.get("id") or os.urandom(4).hex(),
                "tags": order["tags"],
                **choose_claim(order, claims, devices, sorted(os.sched_getaffinity(0))),
                "python": "",
                "boot": boot_id(),
                "at": now_s(),
            }
            self._write(name, box)
            try:
                if _in_shell(self.root):
                    raise BoxError("full", "the host has work of fleetctl's guest in shell")
                for link in order["links"]:
                    self.make_link(link["path"], link["target"], others)
            except BoxError:
                self.remove_links(name, box)
                remove_tree(self.path(name))
                raise
            return box
        finally:
            os.close(handle)

    def change(self, name: str, fields: Box) -> bool:
        """Changes what is written down of a box; False when it is gone, or has ended here."""
        handle = self.lock()
        try:
            box = self.read(name)
            if box is None or self.state(name, box) in ("over", "expired"):
                return False
            path = os.path.join(self.path(name), "box.json")
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                json.dump({**box, **fields}, file)
            os.replace(f"{path}.new", path)
            return True
        finally:
            os.close(handle)

    def _write(self, name: str, box: Box) -> None:
        making = os.path.join(self._directory, f".{name}.{os.getpid()}")
        try:
            os.makedirs(os.path.join(making, "home"), 0o700)
            with open(os.path.join(making, "box.json"), "w", encoding="utf-8") as file:
                json.dump(box, file)
            os.rename(making, self.path(name))
        except OSError:  # a full disk: the next try finds nothing of this one
            remove_tree(making)
            raise

    def make_link(self, path: str, target: str, others: List[Tuple[str, Box]]) -> None:
        """Makes `path` lead to a directory of ours, unless another box needs it to lead elsewhere.
        Raises BoxError.
        """
        os.makedirs(target, 0o700, exist_ok=True)
        try:
            there = os.readlink(path)
        except FileNotFoundError:
            there = ""
        except OSError:
            there = "/"  # a file or directory
        if there == target:
            return
        if there and there != "/" and there.startswith(self.root + "/"):
            used = any(link["path"] == path for _, box in others for link in box["links"])
            if used:
                raise BoxError("full", f"`{path}` leads to another directory for another task")
            os.unlink(path)
        elif there and not (os.path.isdir(path) and not os.path.islink(path)):
            raise BoxError("path", f"`{path}` exists on this machine and is not fleetctl's")
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(target, path)
        except OSError as error:
            raise BoxError(
                "path", f"`{path}` cannot lead to `{target}`: {error.strerror}"
            ) from None

    # -- ending ------------------------------------------------------------------------------------

    def end(self, name: str, *, waits: bool = True) -> bool:
        """Kills all processes of a box and removes it; False when some live on, or without `waits`
        when somebody else is at its gate. No error when it is gone. Its files go a little later:
        another reader of a journal may be at its last lines.
        """
        gate = self.enter_gate(name, alone=True, waits=waits)
        if gate < 0:
            return gate != BUSY
        try:
            box = self.read(name)
            if box is None:
                return True  # another box has its name by now
            if not self.kill(name):
                return False
            self._move_away(name, box)
        finally:
            os.close(gate)
        return True

    def _move_away(self, name: str, box: Box) -> None:
        handle = self.lock()
        try:
            self.remove_links(name, box)
            away = self.put_away("%s@%s" % (name.partition("@")[0], box["id"]))
            os.rename(self.path(name), away)
            # A result as the task wrote it may hold its secret; the journal has it masked.
            remove_tree(os.path.join(away, "state", "files"))
        finally:
            os.close(handle)

    def put_away(self, name: str) -> str:
        """Returns where an ended box is until it is swept. name: with its id, which the boxes of
        one job share.
        """
        return os.path.join(self._directory, f".{name}.gone")

    def ended(self) -> Iterator[Tuple[str, Box]]:
        """Yields the boxes that were removed and not swept, by their names with their ids."""
        for entry in os.scandir(self._directory):
            try:
                with open(os.path.join(entry.path, "box.json"), encoding="utf-8") as file:
                    found = json.load(file)
            except (OSError, ValueError):
                continue  # it is swept meanwhile
            if entry.name.endswith(".gone"):
                yield entry.name[1 : -len(".gone")], found

    def sweep(self) -> None:
        """Removes boxes that ended a while ago, and what a killed process left half-made."""
        for entry in os.scandir(self._directory):
            if not entry.name.startswith("."):
                continue
            keep_s = KEEP_S if entry.name.endswith(".gone") else BEGIN_S
            try:
                age_s = time.time() - entry.stat(follow_symlinks=False).st_ctime
            except FileNotFoundError:
                continue  # another process sweeps
            if not 0 <= age_s < keep_s:
                remove_tree(entry.path)
        engines.sweep_containers(self.root, self.list_containers)

    def list_containers(self) -> Set[str]:
        """Returns the names of the containers that boxes have."""
        found = ((name, self.read(name)) for name in self.names())
        return {engines.container_name(name, box) for name, box in found if box}

    def enter_gate(self, name: str, *, alone: bool, waits: bool = True) -> int:
        """Returns the descriptor that keeps a box from being ended, or with `alone` from being
        begun, until it is closed; -1 without the box; BUSY where it would have to wait.
        """
        wanted = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        path = os.path.join(self.path(name), "box.json")
        while True:
            try:
                gate = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                return -1
            try:
                fcntl.flock(gate, wanted if waits else wanted | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(gate)
                return BUSY
            try:
                if os.path.samestat(os.fstat(gate), os.stat(os.path.dirname(path))):
                    return gate
            except FileNotFoundError:
                os.close(gate)
                return -1
            os.close(gate)  # another box has its name by now

    def is_left(self, name: str) -> bool:
        """Returns whether its supervisor has ended, and reported that no process was left."""
        path = self.path(name)
        noted = os.path.exists(os.path.join(path, "state", "empty"))
        return noted and not supervisor_of(path)[0]

    def kill(self, name: str) -> bool:
        """Kills its processes, of whom none is there when this returns True."""
        from fleetctl.guest.remote.process.tree import Tree

        box = self.read(name)
        container = box.get("container") if box is not None else None
        if box is not None and container and container["command"]:
            container_name = engines.container_name(name, box)
            if not engines.remove_container(container["command"], container_name):
                return False
        if self.is_left(name):
            return True
        state = os.path.join(self.path(name), "state")
        try:
            os.chdir(state)  # it identifies the processes of a box
            runs = [it[:-6] for it in os.listdir("runs") if it.endswith(".begun")]
            with open("supervisor", encoding="ascii") as file:
                text = file.read()
        except FileNotFoundError:
            return True  # no work has begun
        held, _ = supervisor_of(self.path(name))
        if container:
            return not held  # the kernel has ended all with the first process of the container
        # Another machine, such as a cluster's login, has made the box by its own count.
        since_s = box["at"] if box is not None and box["boot"] == boot_id() else 0.0
        tree = Tree(int(text) if held and text else -1, runs, since_s=since_s)
        if not tree.kill(within_s=KILL_S):
            return False
        return not supervisor_of(self.path(name))[0]

    def remove_links(self, name: str, box: Box) -> None:
        me = name.partition("@")[0]
        used = {
            link["path"]
            for other in self.names()
            if other != me
            for link in self._links_in_use(other)
        }
        for link in box["links"]:
            try:
                if link["path"] not in used and os.readlink(link["path"]) == link["target"]:
                    os.unlink(link["path"])
            except OSError:
                continue  # somebody has put another thing there

    def _links_in_use(self, name: str) -> List[Box]:
        """Returns the links that a box still needs. One of a batch job, which has `mounts`, needs
        them until its job leaves: only the job's own machine knows whether its processes live.
        """
        box = self.read(name)
        if box is None:
            return []
        mounts = box.get("mounts")
        if mounts is not None:
            left = os.path.exists(os.path.join(self.path(name), LEFT))
            return [] if left else mounts
        return box["links"] if self.state(name, box) in LIVING else []


def supervisor_of(path: str) -> Tuple[bool, int]:
    """Returns (whether the supervisor of a box lives, the size of its file; -1 without one)."""
    try:
        handle = os.open(os.path.join(path, "state", "supervisor"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False, -1
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        held = False
    except OSError:
        held = True
    size = os.fstat(handle).st_size
    os.close(handle)
    return held, size


def _changed_at_s(path: str) -> float:
    """Returns when the file of a box's supervisor was written last; 0.0 when the box goes now."""
    try:
        return os.stat(os.path.join(path, "state", "supervisor")).st_mtime
    except FileNotFoundError:
        return 0.0


def _in_shell(root: str) -> bool:
    """Returns whether the guest in shell has boxes here: each of both guests looks for the other's
    after it has made its own, as they have no lock in common.
    """
    place = os.path.join(root, "shell", "boxes")
    return os.path.isdir(place) and any(it[0] != "." for it in os.listdir(place))


def choose_claim(order: Box, others: List[Box], devices: List[str], cores: List[int]) -> Box:
    """Returns the claim of a new box. others: claims of the living; devices: names of all GPUs, by
    index; cores: of the machine. Raises BoxError where it does not fit.
    """
    return {
        "gpus": _choose_gpus(order, others, devices),
        "cpu": order["cpu"],
        "memory": order["memory"],
        "cores": _choose_cores(order["cpu"], others, cores),
        "hides_gpus": bool(devices),
        "links": order["links"],
    }


def _choose_gpus(order: Box, others: List[Box], devices: List[str]) -> List[int]:
    """Returns the indexes of the GPUs for a new box. Raises BoxError where it does not fit."""
    size = order["size"]
    if len(others) >= size["slots"]:
        raise BoxError("full", f"all {size['slots']} slots are taken")
    cpu = sum(it["cpu"] for it in others) + order["cpu"]
    if order["cpu"] and cpu > size["cpu"]:
        raise BoxError("full", f"{cpu:g} of {size['cpu']:g} cores would be taken")
    memory = sum(it["memory"] for it in others) + order["memory"]
    if order["memory"] and memory > size["memory"]:
        raise BoxError("full", "its memory is taken")
    wanted = order["gpus"]
    if not wanted:
        return []
    taken = {index for it in others for index in it["gpus"]}
    name = order["gpu"].lower()
    fitting = [it for it, sort in enumerate(devices) if name == "any" or name in sort.lower()]
    free = [index for index in fitting if index not in taken]
    if len(free) < wanted:
        sort = "full" if len(fitting) >= wanted else "never"
        raise BoxError(sort, f"{len(free)} of {len(fitting)} GPUs `{order['gpu']}` are free")
    return free[:wanted]


def _choose_cores(cpu: float, others: List[Box], cores: List[int]) -> List[int]:
    """Returns the cores of a new box, those that others have least of; none where it asks for
    none.
    """
    shares = dict.fromkeys(cores, 0.0)
    for it in others:
        for core in it.get("cores", ()):
            if core in shares:
                shares[core] += it["cpu"] / len(it["cores"])
    return sorted(sorted(shares, key=lambda core: shares[core])[: math.ceil(cpu)])


def remove_tree(path: str) -> None:
    """Removes a directory, also one whose parts its user may not write."""

    def allow(_: Any, failed: str, __: Any) -> None:
        try:
            os.chmod(os.path.dirname(failed), 0o700)
            os.chmod(failed, 0o700)
            if os.path.isdir(failed) and not os.path.islink(failed):
                shutil.rmtree(failed, ignore_errors=True)
            else:
                os.unlink(failed)
        except OSError:
            return  # the warden tries again

    shutil.rmtree(path, onerror=allow)
