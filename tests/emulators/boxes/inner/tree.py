"""The file tree of one box, built in its fresh mount namespace by its pid 1.

The writable part is a plain directory of the host (`root`), so that the emulator reads and writes
a box's files from outside. Host directories lie over it copy-on-write (overlayfs) or, where the
kernel refuses that, read-only; what a box writes below them lands in `root` as well.
"""

from __future__ import annotations

import os

import calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "pts")
COPY_ON_WRITE = ("usr", "etc", "opt")
READ_ONLY = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
EMPTY = (
    "proc",
    "dev",
    "tmp",
    "root",
    "home",
    "run",
    "mnt",
    "var",
    "var/tmp",
    "var/log",
    "srv",
    "sys",
)


def enter(spec: dict[str, Any]) -> dict[str, int]:
    """Build the tree that `spec` describes (see box.py, which writes it) and make it the root.

    Returns the FUSE device of each object mount by its path. Where the kernel has no FUSE for us,
    plain directories are mounted instead.
    """
    root = spec["root"]
    # The directory itself, still reachable when an overlay has been mounted over its path.
    under = f"/proc/self/fd/{os.open(root, os.O_PATH | os.O_CLOEXEC)}"
    if spec["base"] and spec["overlays"]:
        _overlay(root, spec["base"], root, spec["work"] + "/root")
    else:
        for part in reversed(spec["base"]):
            _copy(part, root)
        calls.mount(root, root, "", calls.MS_BIND)
    skeleton(root)
    for number, (path, lowers) in enumerate(_layers(spec)):
        os.makedirs(root + path, exist_ok=True)
        if spec["overlays"]:
            os.makedirs(under + path, exist_ok=True)
            _overlay(root + path, lowers, under + path, f"{spec['work']}/{number}")
        else:
            _without_overlay(root + path, lowers[-1])
    for name in READ_ONLY:
        _host_entry(root, name)
    early, late = _apart(spec["binds"])
    for path, source, read_only in early:
        _bind(root, path, source, read_only=read_only)
    devices = _object_mounts(root, spec["objects"])
    flags = calls.MS_NOSUID | calls.MS_NODEV
    calls.mount("proc", root + "/proc", "proc", flags)
    if spec["own_devices"]:
        _own_devices(root + "/dev")
    else:
        calls.mount("/dev", root + "/dev", "", calls.MS_BIND | calls.MS_REC)
    if os.path.isdir(root + "/dev/shm"):
        calls.mount("tmpfs", root + "/dev/shm", "tmpfs", flags, "mode=1777")
    for path, source, read_only in late if spec["own_devices"] else ():
        _bind(root, path, source, read_only=read_only)
    calls.pivot_root(root)
    return devices


def skeleton(root: str) -> None:
    for name in EMPTY:
        os.makedirs(f"{root}/{name}", exist_ok=True)
    for name in ("tmp", "var/tmp"):
        os.chmod(f"{root}/{name}", 0o1777)


def overlays_work(directory: str) -> bool:
    """Whether this kernel lets us lay directories over each other. Runs in a namespace of ours."""
    places = [f"{directory}/{name}" for name in ("lower", "upper", "work")]
    for place in places:
        os.makedirs(place, exist_ok=True)
    try:
        _overlay(places[1], ["/usr", places[0]], places[1], places[2])
    except OSError:
        return False
    return True


def _layers(spec: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """(path in the box, directories below it, topmost first), parents before children."""
    own = [(path, [lower]) for path, lower in spec["layers"]]
    host = [("/" + name, [f"/{name}"]) for name in COPY_ON_WRITE if os.path.isdir("/" + name)]
    # What the base has of a host directory lies between the box and the host.
    host = [(path, _present(spec["base"], path) + lowers) for path, lowers in host]
    return sorted(host + own)


def _present(base: list[str], path: str) -> list[str]:
    return [part + path for part in base if os.path.isdir(part + path)]


def _without_overlay(target: str, lower: str) -> None:
    if os.path.basename(target) in COPY_ON_WRITE and os.path.dirname(lower) == "/":
        calls.bind(lower, target, read_only=True)
    else:
        _copy(lower, target)


def _copy(tree: str, target: str) -> None:
    import shutil  # which most boxes can do without, and it is large

    shutil.copytree(tree, target, symlinks=True, dirs_exist_ok=True)


def _overlay(target: str, lowers: list[str], upper: str, work: str) -> None:
    os.makedirs(work, exist_ok=True)
    stack = ":".join(part.replace("\\", "\\\\").replace(":", "\\:") for part in lowers)
    # Without `volatile` the end of each box would flush the whole file system below it to disk.
    data = f"lowerdir={stack},upperdir={upper},workdir={work},userxattr,volatile"
    calls.mount("overlay", target, "overlay", 0, data)


def _host_entry(root: str, name: str) -> None:
    source, target = "/" + name, f"{root}/{name}"
    if os.path.islink(source):
        if not os.path.lexists(target):
            os.symlink(os.readlink(source), target)
    elif os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
        calls.bind(source, target, read_only=True)


def _bind(root: str, path: str, source: str, *, read_only: bool) -> None:
    target = root + path
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.lexists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    calls.bind(source, target, read_only=read_only)


def _apart(binds: list[list[Any]]) -> tuple[list[list[Any]], list[list[Any]]]:
    """Those below /dev come after the devices."""
    late = [it for it in binds if it[0].startswith("/dev/")]
    return [it for it in binds if it not in late], late


def _own_devices(target: str) -> None:
    """As container runtimes have it: few devices, and a directory in which files can be made."""
    calls.mount("tmpfs", target, "tmpfs", calls.MS_NOSUID, "mode=755")
    for name in DEVICES:
        if os.path.exists(f"/dev/{name}"):
            _bind(target, f"/{name}", f"/dev/{name}", read_only=False)
    os.mkdir(f"{target}/shm")
    links = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, place in {**links, "ptmx": "pts/ptmx"}.items():
        os.symlink(place, f"{target}/{name}")


def _object_mounts(root: str, objects: list[tuple[str, str]]) -> dict[str, int]:
    """Nothing may look into one of them until somebody answers at its device."""
    devices: dict[str, int] = {}
    for path, source in objects:
        os.makedirs(root + path, exist_ok=True)
        try:
            devices[path] = _object_mount(root + path)
        except OSError:
            _bind(root, path, source, read_only=False)
    return devices


def _object_mount(target: str) -> int:
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        data = f"fd={device},rootmode=40000,user_id=0,group_id=0"
        calls.mount("objects", target, "fuse", calls.MS_NOSUID | calls.MS_NODEV, data)
    except OSError:
        os.close(device)
        raise
    return device
