"""The tier of isolation: builds the namespaces once, for the supervisor and all runs that it forks,
and makes a process give up capabilities and new privileges for good.

If any step fails, the supervisor stays in tier `process` and reports why. It drops its privileges
once the namespaces are built, and every run inherits that; where runs still have to mount
directories of their own, each run drops them itself.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from typing import Any, Optional, Sequence

from . import syscalls
from .mounts import MountTree

NAMESPACES = "namespaces"
PROCESS = "process"

_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
# Before ABI 2, Landlock denies every rename across directories, which breaks git and pip: it is not
# used there.
_ABI_MIN = 2
_WRITE_FILE = 1 << 1
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_REFER = 1 << 13
_TRUNCATE = 1 << 14  # ABI 3


class Unshared:
    """The tier that was reached, in the process that goes on as the supervisor."""

    def __init__(self, tier: str, problem: str = "") -> None:
        self.tier = tier
        self.problem = problem


def enter_spaces(config: dict[str, Any], directory: str) -> Unshared:
    """Goes on as pid 1 of new namespaces, or where they cannot be made, in tier `process` with the
    reason. The parents of pid 1 exit here.
    """
    if config["tier"] == PROCESS:
        return _process_tier("")
    if sys.platform != "linux":
        return _process_tier(f"{sys.platform} has no namespaces")
    reader, writer = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(reader)
        _become_init(config, directory, writer)
        os.close(writer)
        return Unshared(NAMESPACES)
    os.close(writer)
    problem = _read_all(reader)
    os.close(reader)
    if problem == "ok":
        os._exit(0)
    os.waitpid(first, 0)
    if config["tier"] == NAMESPACES:
        raise OSError(f"tier `namespaces` was asked for: {problem or 'the set-up process died'}")
    return _process_tier(problem or "the set-up process died")


def settle_spaces(config: dict[str, Any], directory: str) -> Unshared:
    """Enters as `enter_spaces` does, for a process that was born in its namespaces. Raises OSError
    when its tree cannot be built: there is no way back.
    """
    _build_tree(config, directory)
    return Unshared(NAMESPACES)


def tier_name() -> str:
    """Returns the name of the full tier on this kernel."""
    return NAMESPACES + ("+landlock" if landlock_abi() else "")


def drop_privileges(directories: list[int]) -> None:
    """Drops privileges for good, and with Landlock also writing elsewhere. directories: descriptors
    of those that may be written to.
    """
    drop_all_privileges()
    allow_writes_only_to(directories)


def open_places(config: dict[str, Any]) -> list[int]:
    """Opens the directories that runs may write to, in the new tree."""
    paths = [config["work_dir"], "/tmp", "/dev", "/proc"]  # the runs' own
    paths += [volume["mount_path"] for volume in config["volumes"] if not volume["read_only"]]
    return [os.open(path, os.O_PATH | os.O_CLOEXEC) for path in paths]


def mount_source(source: str, mount_path: str) -> None:
    """Shows, in a run's own process, its copy of the source at the path that the manifest names."""
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount(source, mount_path, None, syscalls.MS_BIND)


def without_mounts(config: dict[str, Any]) -> list[str]:
    """Makes symlinks in tier `process` where they can be made; returns a sentence for each missing
    path.
    """
    remarks = []
    config["made_links"] = []
    for volume in config["volumes"]:
        for path in (volume["mount_path"], *volume["links"]):
            if _ensure_link(path, volume["dir"]):
                config["made_links"].append((path, volume["dir"]))
            else:
                remarks.append(
                    f"volume `{volume['name']}` is not at {path}, which cannot be made here;"
                    f" find it through ${volume['variable']}"
                )
    if config["source"] and config["source"]["mount_path"]:
        remarks.append(
            f"the source is not at {config['source']['mount_path']} but where the task starts"
        )
        config["source"]["mount_path"] = None
    return remarks


def process_note(problem: str, remarks: list[str]) -> str:
    """Returns the note of a run in tier `process`, with the reason and the remarks."""
    return (
        PROCESS
        + (f" ({problem})" if problem else "")
        + "".join(f"; {remark}" for remark in remarks)
    )


def remove_links(config: dict[str, Any]) -> None:
    """Removes the symlinks of tier `process`."""
    for path, target in config.get("made_links", []):
        if os.path.islink(path) and os.readlink(path) == target:
            os.unlink(path)


def _ensure_link(path: str, target: str) -> bool:
    """Returns whether `path` is, or now is, a symlink to the volume. Replaces only a broken
    link.
    """
    try:
        if os.path.islink(path):
            if os.readlink(path) == target:
                return True
            if os.path.exists(path):
                return False
            os.unlink(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
    except OSError:
        return False
    return True


def _process_tier(problem: str) -> Unshared:
    if sys.platform == "linux":
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    return Unshared(PROCESS, problem)


def _become_init(
    config: dict[str, Any],
    directory: str,
    writer: int,
) -> None:
    """Runs in the first child; returns in its child, which is pid 1 and sees the new tree."""
    try:
        uid = os.getuid()
        gid = os.getgid()
        syscalls.unshare(
            syscalls.CLONE_NEWUSER
            | syscalls.CLONE_NEWNS
            | syscalls.CLONE_NEWPID
            | syscalls.CLONE_NEWIPC
        )
        be_the_same(uid, gid)
        if os.fork() != 0:
            os._exit(0)
        _build_tree(config, directory)
    except OSError as error:
        os.write(writer, str(error).encode() or b"unknown")
        os._exit(1)
    os.write(writer, b"ok")


def be_the_same(uid: int, gid: int) -> None:
    """Keeps our user in the new user namespace as it is outside; before this no file can be
    made.
    """
    _write_file("/proc/self/setgroups", "deny")
    _write_file("/proc/self/uid_map", f"{uid} {uid} 1")
    _write_file("/proc/self/gid_map", f"{gid} {gid} 1")


def _build_tree(config: dict[str, Any], directory: str) -> None:
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    top = config.get("top") or os.path.join(directory, "root")
    os.makedirs(top, exist_ok=True)
    tree = MountTree(top)
    tree.proc()
    tree.tmpfs("/tmp", "1777")  # the runs' own
    if os.path.isdir(top + "/dev/shm"):
        tree.tmpfs("/dev/shm", "1777")
    tree.tmpfs(config["home"], "0700")
    for path in config["expose"]:
        tree.bind(path, path, read_only=True)
    tree.bind(config["work_dir"], config["work_dir"], read_only=False)
    for volume in config["volumes"]:
        tree.bind(
            volume["dir"], _resolve_parents(volume["mount_path"]), read_only=volume["read_only"]
        )
        for link in volume["links"]:
            tree.link(_resolve_parents(link), volume["mount_path"])
    source: Optional[dict[str, Any]] = config["source"]
    if source and source["mount_path"]:
        tree.place(_resolve_parents(source["mount_path"]))
    syscalls.pivot_root(top)


def _resolve_parents(path: str) -> str:
    """Returns the path with the symlinks in its parents resolved, as mounts need it."""
    if os.path.isdir(path):
        return os.path.realpath(path)
    parent, name = os.path.split(path.rstrip("/"))
    return os.path.join(os.path.realpath(parent), name)


def _read_all(source: int) -> str:
    parts = []
    while part := os.read(source, 4096):
        parts.append(part)
    return b"".join(parts).decode("utf-8", "replace")


def _write_file(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


class _RulesetAttr(ctypes.Structure):
    _fields_ = [("handled_access_fs", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


def drop_all_privileges() -> None:
    syscalls.drop_capabilities()
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)


def landlock_abi() -> int:
    """Returns the version of Landlock's ABI; 0 without Landlock, or below _ABI_MIN."""
    try:
        abi = syscalls.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError:
        return 0
    if abi >= _ABI_MIN:
        return abi
    return 0


def allow_writes_only_to(directories: Sequence[int]) -> bool:
    """Denies this process and its children to write elsewhere, by Landlock; returns false where the
    kernel has none. directories: open descriptors.
    """
    abi = landlock_abi()
    if not abi:
        return False
    handled = _WRITE_FILE | _REMOVE_AND_MAKE | _REFER | (_TRUNCATE if abi >= 3 else 0)
    attr = _RulesetAttr(handled)
    ruleset = syscalls.syscall(_CREATE_RULESET, ctypes.byref(attr), ctypes.sizeof(attr), 0)
    try:
        for descriptor in directories:
            allowed = handled
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                allowed &= _WRITE_FILE | _TRUNCATE
            rule = _PathBeneath(allowed, descriptor)
            syscalls.syscall(
                _ADD_RULE,
                ruleset,
                _PATH_BENEATH,
                ctypes.byref(rule),
                0,
            )
        syscalls.syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return True
