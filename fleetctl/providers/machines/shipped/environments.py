"""The facts of a machine, and the Python environments that are built on it.

Runs on the machine. An environment is a directory named by all that went into it, shared by all
images that need the same; it is built once, under a lock, by uv where that is there, else by pip.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
import select
import shutil
import socket
import struct
import subprocess
import sys

from fleetctl.providers.machines.shipped.engines import describe_engine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

ANSWER_S = 20.0
START_S = 5.0  # for the start of an interpreter
NAMES_BYTES_MAX = 65_536
TAIL_CHARACTERS = 2000
SIOCGIFADDR = 0x8915  # of Linux: the address of an interface
BUILT = ".built"  # the last file of an environment


def import_ahead() -> None:
    """Imports the modules of the standard library that the start of an interpreter imports on this
    machine, so that the workers which are forked from this process need not do it again. Packages
    may extend that start; it is tried in a process of its own.
    """
    read, written = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(written, " ".join(_start_interpreter()).encode())
        finally:
            os._exit(0)
    os.close(written)
    names = b""
    if select.select([read], [], [], START_S)[0]:
        names = os.read(read, NAMES_BYTES_MAX)
    os.close(read)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    # By ctypes a supervisor adopts the orphans of its runs.
    for name in ("ctypes", *names.decode().split()):
        try:
            __import__(name)
        except ImportError:
            continue  # not all have ctypes, and `typing.io` is no module of its own


def _start_interpreter() -> List[str]:
    null = os.open(os.devnull, os.O_RDWR)
    for handle in range(3):
        os.dup2(null, handle)
    before = set(sys.modules)
    import site

    site.main()
    library: Tuple[str, ...] = tuple(getattr(sys, "stdlib_module_names", ()))  # since Python 3.10
    return [it for it in sys.modules if it not in before and it.partition(".")[0] in library]


def find_facts(root: str, devices: List[str], engine: List[str]) -> Dict[str, Any]:
    """Returns what a controller plans with. engine: as `engines.find_engine` takes it."""
    disk = os.statvfs(root)
    return {
        "cpu": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": devices,
        "python": "%d.%d.%d" % sys.version_info[:3],
        "root": root,
        "free": disk.f_bavail * disk.f_frsize,
        "installer": "uv" if _find_uv() else "pip",
        "containers": describe_engine(engine),
        "ends_with_login": _ends_with_login(),
    }


def address_of(interface: str) -> str:
    """Returns the address of an interface. Raises OSError without such an interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", interface.encode()[:15])
        reply = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)
    return socket.inet_ntoa(reply[20:24])


def list_gpus() -> List[str]:
    """Returns the names of GPUs by index, as the driver's own program lists them."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", "-L"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    # `GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-...)`
    lines = answer.stdout.decode("utf-8", "replace").splitlines()
    return [it.partition(":")[2].partition("(")[0].strip() for it in lines if it[:4] == "GPU "]


def _ends_with_login() -> bool:
    """Returns whether logind would kill our processes when the last connection closes."""
    if os.geteuid() == 0 or not os.path.isdir("/run/systemd/seats"):
        return False
    texts = []
    for path in ("/etc/systemd/logind.conf", *glob.glob("/etc/systemd/logind.conf.d/*.conf")):
        try:
            with open(path, encoding="utf-8") as file:
                texts += file.read().splitlines()
        except OSError:
            continue
    kills = any(it.replace(" ", "").lower() == "killuserprocesses=yes" for it in texts)
    lingers = os.path.exists(f"/var/lib/systemd/linger/{os.environ.get('USER', '')}")
    return kills and not lingers


def _find_uv() -> str:
    home = os.path.expanduser("~/.local/bin/uv")
    return shutil.which("uv") or (home if os.access(home, os.X_OK) else "")


def build(agent: Any, request: Dict[str, Any], _: bytes) -> int:
    """Builds an environment, unless it is there; writes the path of its Python, or the fault."""
    wanted = request["image"]
    facts = [wanted["python"], sorted(wanted["pip"]), wanted["index"], sys.version]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    place = os.path.join(agent.boxes.root, "environments")
    os.makedirs(place, 0o700, exist_ok=True)
    directory = os.path.join(place, key)
    python = os.path.join(directory, "bin", "python")
    with open(f"{directory}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(os.path.join(directory, BUILT)):
            fault = _build_in(directory, wanted, request["variables"])
            if fault:
                os.write(1, json.dumps({"error": "image", "message": fault}).encode())
                return 0
    os.write(1, json.dumps({"python": python}).encode())
    return 0


def _build_in(
    directory: str,
    wanted: Dict[str, Any],
    variables: Dict[str, str],
) -> str:
    """Returns the fault, or "". Its path is a part of what is made: it is made where it stays."""
    if os.path.isdir(directory):
        shutil.rmtree(directory)
    uv = _find_uv()
    own = "%d.%d" % sys.version_info[:2]
    python = wanted["python"] or own
    if not uv and not own.startswith(python) and not python.startswith(own):
        return f"it has Python {own} and no uv, and the image needs Python {python}"
    target = os.path.join(directory, "bin", "python")
    if uv:
        chosen = sys.executable if python == own else python
        steps = [[uv, "venv", "--quiet", "--python", chosen, directory]]
        installs = [uv, "pip", "install", "--quiet", "--python", target]
    else:
        steps = [[sys.executable, "-m", "venv", directory]]
        installs = [target, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if wanted["pip"]:
        steps.append([*installs, *wanted["index"], *wanted["pip"]])
    for argv in steps:
        answer = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "UV_NO_PROGRESS": "1", **variables},
            check=False,
        )
        if answer.returncode:
            return answer.stdout.decode("utf-8", "replace").strip()[-TAIL_CHARACTERS:]
    with open(os.path.join(directory, BUILT), "w", encoding="utf-8"):
        return ""
