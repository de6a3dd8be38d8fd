"""Checks this machine for `doctor`: Python and SQLite, room, filesystem, clock, and features of its
kernel. Changes nothing.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from importlib import metadata
from pathlib import Path

from fleetctl.common.errors import FleetctlError
from fleetctl.common.install import install_hint
from fleetctl.common.text import byte_size, format_duration
from fleetctl.providers.contract.account import CheckResult
from fleetctl.specs.builtin import BUILT_IN
from fleetctl.wiring.plugins import plugin_of

PYTHON_MIN = (3, 11)
SQLITE_MIN = (3, 35)  # RETURNING, which the store's queries use
# The store frees a reserve of some MiB when the disk is full; logs and images need more.
ROOM_BYTES_MIN = 512 << 20
DESCRIPTORS_MIN = 4096  # taken by a supervisor of local tasks where it may
# A provider refuses signed requests, and leases end early, from some minutes on.
SKEW_S_MAX = 30.0
ASK_S = 3.0
SET_CLOCK = "sudo timedatectl set-ntp true"
NAMESPACES = Path("/proc/sys/user/max_user_namespaces")
CLONE = Path("/proc/sys/kernel/unprivileged_userns_clone")
UNIFIED = "systemd.unified_cgroup_hierarchy=1"
CGROUPS = Path("/sys/fs/cgroup/cgroup.controllers")
SDKS = ("wandb", "kubernetes", "optuna")  # and those of the providers
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)")
# landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) returns the version it has.
_LANDLOCK_CREATE = 444
_LANDLOCK_VERSION = 1


def check_machine(state_dir: Path) -> Iterator[CheckResult]:
    """Yields findings. state_dir: the state directory, which may be missing."""
    nearest = _find_nearest(state_dir)
    yield _check_python()
    yield _check_sqlite()
    yield _check_disk(nearest)
    yield _check_filesystem(nearest)
    yield _check_descriptors()
    yield from _check_clock(state_dir)
    yield from _check_kernel()
    yield from _check_packages()


def _find_nearest(state_dir: Path) -> Path:
    while not os.path.lexists(state_dir) and state_dir != state_dir.parent:
        state_dir = state_dir.parent
    return state_dir


def _check_python() -> CheckResult:
    fine = sys.version_info[:2] >= PYTHON_MIN
    message = f"{platform.python_implementation()} {platform.python_version()}, `{sys.executable}`"
    return CheckResult(
        "python",
        "version",
        fine,
        message,
        "uv python install 3.12",
    )


def _check_sqlite() -> CheckResult:
    fine = sqlite3.sqlite_version_info[:2] >= SQLITE_MIN
    return CheckResult(
        "sqlite",
        "version",
        fine,
        sqlite3.sqlite_version,
        "uv python install 3.12",
    )


def _check_disk(nearest: Path) -> CheckResult:
    try:
        free = shutil.disk_usage(nearest).free
        inodes = os.statvfs(nearest)
    except OSError as error:
        return CheckResult(
            "disk",
            "room",
            False,
            f"`{nearest}`: {error.strerror}",
            f"df -h {nearest}",
        )
    if inodes.f_files and inodes.f_favail < 1000:
        message = f"`{nearest}` has room for {inodes.f_favail} more files"
        return CheckResult(
            "disk",
            "room",
            False,
            message,
            f"df -i {nearest}",
        )
    message = f"{byte_size(free)} free at `{nearest}`"
    return CheckResult(
        "disk",
        "room",
        free >= ROOM_BYTES_MIN,
        message,
        f"df -h {nearest}",
    )


def _check_filesystem(nearest: Path) -> CheckResult:
    from fleetctl.stores.state_dir import filesystem_of

    try:
        kind = filesystem_of(nearest, Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    except OSError:
        kind = ""
    message = f"`{nearest}` is on {kind or 'one that this system does not name'}"
    return CheckResult("disk", "filesystem", True, message)


def _check_descriptors() -> CheckResult:
    """Checks how many files a process may open: a hundred tasks at once need some hundreds."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    fine = hard == resource.RLIM_INFINITY or hard >= DESCRIPTORS_MIN
    message = f"at most {hard} open at once" if hard > 0 else "no limit of open ones"
    if not fine:
        message += f", and {DESCRIPTORS_MIN} are wanted: fewer tasks and calls run at once"
    return CheckResult(
        "files",
        "limit",
        fine,
        message,
        "sudo prlimit --pid $$ --nofile=65536:65536",
    )


def _check_clock(state_dir: Path) -> Iterator[CheckResult]:
    now_s = time.time()
    ahead_s = _newest_s(state_dir) - now_s
    message = (
        "agrees with the store"
        if os.path.lexists(state_dir)
        else "there is no store to compare it with"
    )
    if ahead_s > SKEW_S_MAX:
        message = f"is {format_duration(ahead_s)} behind what the store has seen"
    yield CheckResult(
        "clock",
        "store",
        ahead_s <= SKEW_S_MAX,
        message,
        SET_CLOCK,
    )
    began = time.monotonic()
    steady = time.get_clock_info("monotonic").monotonic and time.monotonic() >= began
    yield CheckResult(
        "clock",
        "monotonic",
        steady,
        "never goes back",
        "uname -a",
    )
    for server in (plugin_of(sort).server for sort in BUILT_IN):
        if server is not None and os.environ.get(server.credential):
            yield from _compare_clock(os.environ.get(server.named) or server.url)


def _newest_s(state_dir: Path) -> float:
    """Returns the latest time in the store; 0 without one."""
    from fleetctl.views.store_reading import open_reading

    try:
        with open_reading(state_dir) as reading:
            return max((seen.resource.created_at_s for seen in reading.views()), default=0.0)
    except FleetctlError:
        return 0.0  # the line about the state directory has the reason


def _compare_clock(server: str) -> Iterator[CheckResult]:
    """Yields the difference of our clock to a server's; nothing for an unreachable server or one
    without a time."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    if not server.startswith(("https://", "http://")):
        return
    before_s = time.time()
    try:
        with urlopen(Request(server, method="HEAD"), timeout=ASK_S) as answer:  # noqa: S310
            value = answer.headers.get("Date")
    except HTTPError as error:
        value = error.headers.get("Date")
    except (OSError, ValueError, HTTPException):
        return  # also what speaks another protocol, as a gRPC server does
    if not value:
        return
    try:
        theirs_s = parsedate_to_datetime(value).timestamp()
    except ValueError:
        return
    off_s = (before_s + time.time()) / 2 - theirs_s
    which = "ahead of" if off_s > 0 else "behind"
    fine = abs(off_s) <= SKEW_S_MAX
    message = (
        f"agrees with `{server}`"
        if fine
        else f"is {format_duration(abs(off_s))} {which} `{server}`"
    )
    yield CheckResult(
        "clock",
        "server",
        fine,
        message,
        SET_CLOCK,
    )


def _check_kernel() -> Iterator[CheckResult]:
    """Checks for tier `namespaces` of provider `local`; without them it runs in tier `process`."""
    most = _read_number(NAMESPACES)
    clone = _read_number(CLONE)
    on = most != 0 and clone != 0
    fix = "sudo sysctl -w user.max_user_namespaces=15000"
    if clone == 0:
        fix = "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    yield CheckResult(
        "kernel",
        "namespaces",
        on,
        "users may make them" if on else "are off",
        fix,
    )
    version = _query_landlock()
    message = f"version {version}" if version > 0 else "is not in this kernel, or is off"
    yield CheckResult(
        "kernel",
        "landlock",
        version > 0,
        message,
        "boot with lsm=landlock,... (Linux 5.13)",
    )
    try:
        message = CGROUPS.read_text(encoding="utf-8").strip()
        yield CheckResult("kernel", "cgroups", True, f"version 2: {message or 'no controllers'}")
    except OSError:
        yield CheckResult(
            "kernel",
            "cgroups",
            False,
            "version 2 is not mounted",
            _boot_with(UNIFIED),
        )


def _boot_with(argument: str) -> str:
    """Returns the command by which this system's own tools set a kernel argument."""
    if shutil.which("grubby"):
        return f"sudo grubby --update-kernel=ALL --args={argument}"
    if shutil.which("update-grub"):
        return f"add {argument} to GRUB_CMDLINE_LINUX in /etc/default/grub; sudo update-grub"
    return f"boot with {argument}"


def _check_packages() -> Iterator[CheckResult]:
    """Checks each installed SDK against the version that this fleetctl was made for."""
    try:
        lines = metadata.requires("fleetctl") or ()
    except metadata.PackageNotFoundError:
        return  # run from its sources, which name no versions
    sdks = {*SDKS, *(plugin_of(sort).sdk for sort in BUILT_IN)}
    for line in lines:
        wanted, _, condition = line.partition(";")
        extra = _EXTRA.search(condition)
        name = re.split(r"[^A-Za-z0-9_.-]", wanted.strip())[0]
        if extra is None or name not in sdks:
            continue
        try:
            has = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # the line of its provider reports that, when an object needs it
        limits = wanted.strip().removeprefix(name).strip()
        fix = install_hint(extra[1], upgrade=True)
        message = f"{name} {has}" + (f", made for {limits}" if limits else "")
        yield CheckResult(
            name,
            "version",
            fits_limits(has, limits),
            message,
            fix,
        )


def fits_limits(version: str, limits: str) -> bool:
    """Returns true where `1.6.4` keeps to `>=1.6,<2`. Reads only the forms in our own
    requirements."""
    for limit in filter(None, limits.replace(" ", "").split(",")):
        sign, number = re.split(r"(?=[0-9])", limit, maxsplit=1)
        has = _split_version(version)
        most = _split_version(number.removesuffix(".*"))
        size = max(len(has), len(most))
        left, right = (one + (0,) * (size - len(one)) for one in (has, most))
        same_series = has[: len(most)] == most
        well = {
            ">=": left >= right,
            "<=": left <= right,
            ">": left > right,
            "<": left < right,
            "==": same_series if number.endswith(".*") else left == right,
            "!=": left != right,
            "~=": left >= right and has[: len(most) - 1] == most[:-1],
        }
        if not well[sign]:
            return False
    return True


def _split_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", version.partition("+")[0])[:3])


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _query_landlock() -> int:
    import ctypes

    if platform.system() != "Linux":
        return 0
    call = ctypes.CDLL(None, use_errno=True).syscall
    return int(call(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _LANDLOCK_VERSION))
