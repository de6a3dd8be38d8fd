"""The containers of boxes whose work has an image of a registry.

Runs on the machine. A container is begun with its box and waits for the box's first order, which
comes through a pipe in the box's directory: no variable of the work is in a command line or in the
engine's records. Its first process becomes the supervisor, so that all others end with it, and it
needs no process outside. That process is the Python of the image, or where the image has none that
of this machine, shown to the container with its loader and its libraries.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time

from fleetctl.providers.machines.shipped import engines
from fleetctl.providers.machines.shipped.boxes import BEGIN_S, BoxError, Boxes, now_s, supervisor_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Tuple

PULL_S = 3600.0
PULL_LOOK_S = 30.0  # between two notes that a box waits for its image
HAND_S = 60.0  # for a container to take its order, and for its supervisor to begin
LOOK_S = 0.02
PIPE = "order"
REFUSALS = (
    *("unauthorized", "denied", "authentication", "not found", "manifest", "no such image"),
    *("invalid reference", "short-name", "does not exist"),
)
MODULES = ("ctypes", "hashlib", "json", "socket", "ssl", "sqlite3", "subprocess", "tarfile", "zlib")

# The first process of a container. Arguments: the pipe of its order, the state directory, the guest
# and the command of this machine's Python.
BOOT = (
    """
import json,os,signal,sys
pipe,state,guest,*own=sys.argv[1:]
os.umask(63)
signal.signal(14,lambda*_:os._exit(1));signal.alarm(%d)
with open(pipe,"rb") as f:given=json.loads(f.read())
signal.alarm(0);signal.signal(14,signal.SIG_DFL)
order=given["order"]
if given["cores"]:
 try:os.sched_setaffinity(0,given["cores"])
 except OSError:pass
probe="import sys,socket,select,fcntl,json,zlib,binascii;sys.exit(sys.version_info<(3,9))"
path=[d for d in os.environ.get("PATH",os.defpath).split(":") if d]
for p in [d+"/"+n for n in("python3","python") for d in path]:
 if os.access(p,os.X_OK) and os.spawnv(os.P_WAIT,p,[p,"-I","-S","-c",probe])==0:
  own=[p];break
else:
 if order["mode"]=="python":order.update(mode="exec",argv=["python3"])
h=os.memfd_create("order")
os.write(h,json.dumps(order).encode());os.lseek(h,0,0);os.dup2(h,0)
os.environ.update(given["variables"])
os.execv(own[0],[*own,"-I","-S",guest,"lead","--dir",state,"--run",order["run"]])
"""
    % BEGIN_S
)


def start_container(boxes: Boxes, name: str, *, guest: str, gpus: List[int]) -> None:
    """Starts the container of a box, unless it is there; pulls its image before, unless that is
    here. Raises BoxError: `engine`, `image` or `container` for what stays as it is, `machine` for
    what may pass.
    """
    with open(os.path.join(boxes.path(name), "container.lock"), "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        box = boxes.read(name)
        if box is None:
            raise BoxError("machine", "its box is gone")
        wanted = box["container"]
        command = engines.find_engine(wanted["command"])
        if not command:
            raise BoxError(
                "engine", "it has no %s" % (wanted["command"] or ["podman or docker"])[0]
            )
        wanted = box["container"] = {**wanted, "command": command}
        boxes.change(name, {"container": wanted})
        if supervisor_of(boxes.path(name))[1] >= 0:
            return
        engines.note_engine(boxes.root, command)
        own = make_runtime(boxes.root)
        pipe = os.path.join(boxes.path(name), PIPE)
        if not os.path.exists(pipe):
            os.mkfifo(pipe, 0o600)
        words = run_words(boxes, name, box, guest, own, gpus)
        if not _run_container(boxes, name, box, words):
            _pull_image(boxes, name, command, wanted["image"])
            if not _run_container(boxes, name, box, words):
                raise BoxError("machine", "its image is removed again and again")


def _run_container(boxes: Boxes, name: str, box: Dict[str, Any], words: List[str]) -> bool:
    """Runs a container, unless it runs; False where its image is not here. Asked in the order that
    costs least: nearly always its image is here, and no container of its name. Raises BoxError.
    """
    command, container = box["container"]["command"], engines.container_name(name, box)
    said = ""
    for _ in range(2):  # a container of an earlier try that has ended holds the name
        code, _, said = engines.call_engine(words)
        if code == 0 or _is_running(command, container):
            return True
        engines.remove_container(command, container)
        if not _has_image(command, box["container"]["image"]):
            return False
    passing = "no space left" in said.lower() or "does not answer" in said
    raise BoxError("machine" if passing else "container", _last_error(said))


def run_words(
    boxes: Boxes, name: str, box: Dict[str, Any], guest: str, own: List[str], gpus: List[int]
) -> List[str]:
    """Returns the command that starts a box's container. own: the command of this machine's Python
    inside of it; gpus: indexes of its GPUs.
    """
    wanted = box["container"]
    command, path = wanted["command"], boxes.path(name)
    podman = engines.is_podman(command)
    # The user of the login in both cases: root of a container of podman's is that user outside.
    user = "0:0" if podman else "%d:%d" % (os.geteuid(), os.getegid())
    words = [
        *command,
        "run",
        "--pull=never",
        "--detach",
        "--rm",
        "--name",
        engines.container_name(name, box),
    ]
    words += ["--label", f"{engines.LABEL}={boxes.root}", "--log-driver=none", f"--user={user}"]
    words += ["--security-opt=label=disable", "--shm-size=%d" % (_memory_bytes() // 2)]
    if not podman:
        words += ["--env", f"HOME={path}/home"]
    if not any(it.partition("=")[0] in ("--network", "--net") for it in wanted["args"]):
        words.append("--network=host")
    if gpus and podman:
        words += [word for index in gpus for word in ("--device", f"nvidia.com/gpu={index}")]
    elif gpus:
        words += ["--gpus", '"device=%s"' % ",".join(map(str, gpus))]
    runtime = os.path.dirname(own[0])
    library = os.path.join(runtime, sys.platlibdir, os.path.basename(_standard_library()))
    mounts = [(path, path, ""), (os.path.dirname(guest), os.path.dirname(guest), ":ro")]
    mounts += [(runtime, runtime, ":ro"), (_standard_library(), library, ":ro")]
    for mount in wanted["mounts"]:
        os.makedirs(mount["target"], 0o700, exist_ok=True)
        mounts.append((mount["target"], mount["path"], ":ro" if mount.get("read_only") else ""))
    for source, target, mode in mounts:
        words += ["--volume", f"{source}:{target}{mode}"]
    words += [*wanted["args"], "--entrypoint", own[0], wanted["image"], *own[1:]]
    state = os.path.join(path, "state")
    return [*words, "-I", "-S", "-c", BOOT, os.path.join(path, PIPE), state, guest, *own]


def hand_order(
    boxes: Boxes, name: str, order: bytes, variables: Dict[str, str], cores: List[int]
) -> bool:
    """Hands the first order to the container of a box; returns once its supervisor has begun. False
    where the container ended before that: then the box is given up.
    """
    path = boxes.path(name)
    given = {"order": json.loads(order), "variables": variables, "cores": cores}
    latch = os.path.join(path, "state", "runs", f"{given['order']['run']}.begun")
    with open(os.path.join(path, "container.lock"), "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.path.exists(latch):
            return True
        until_s = time.monotonic() + HAND_S
        if _write_pipe(os.path.join(path, PIPE), json.dumps(given).encode()):
            while time.monotonic() < until_s:
                if os.path.exists(latch) and supervisor_of(path)[1] > 0:
                    return True
                time.sleep(LOOK_S)
    # It never began, and counts as one whose order did not come in time.
    boxes.change(name, {"at": now_s() - BEGIN_S})
    return False


def _write_pipe(pipe: str, data: bytes) -> bool:
    """Returns whether a reader has taken all of it."""
    until_s = time.monotonic() + HAND_S / 4  # a container that has just begun opens it soon
    while True:
        try:
            handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            break
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > until_s:
                return False
            time.sleep(LOOK_S)
    os.set_blocking(handle, True)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
    except BrokenPipeError:
        return False
    finally:
        os.close(handle)
    return True


def enter_words(name: str, box: Dict[str, Any]) -> List[List[str]]:
    """Returns the words of a command in the container of a box, before and after its options; []
    for a box without one.
    """
    if not box.get("container"):
        return []
    command = [*(box["container"]["command"] or ["podman"]), "exec", "--interactive"]
    return [command, [engines.container_name(name, box)]]


def _is_running(command: List[str], container: str) -> bool:
    words = ["container", "inspect", "--format", "{{.State.Running}}", container]
    return engines.call_engine([*command, *words])[1] == "true"


def _has_image(command: List[str], image: str) -> bool:
    return engines.call_engine([*command, "image", "inspect", "--format", "{{.Id}}", image])[0] == 0


def _pull_image(boxes: Boxes, name: str, command: List[str], image: str) -> None:
    """Pulls an image once, whoever needs it, however many do."""
    key = hashlib.sha256(image.encode()).hexdigest()[:16]
    directory = os.path.join(boxes.root, engines.ENGINES)
    with open(os.path.join(directory, f"{key}.lock"), "w", encoding="utf-8") as lock:
        _await_other(lambda: _try_lock(lock), lambda: boxes.change(name, {"at": now_s()}))
        if (
            engines.call_engine([*command, "image", "inspect", "--format", "{{.Id}}", image])[0]
            == 0
        ):
            return
        pulling = subprocess.Popen(
            [*command, "pull", "--quiet", image],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        said = _await_pull(pulling, lambda: boxes.change(name, {"at": now_s()}))
        if pulling.returncode == 0:
            return
    refused = any(word in said.lower() for word in REFUSALS)
    raise BoxError("image" if refused else "machine", _last_error(said))


def _try_lock(lock: Any) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _await_other(holds: Callable[[], bool], note: Callable[[], object]) -> None:
    """Waits for something that another process does, not longer than a pull may take."""
    until_s, noted_at_s = time.monotonic() + PULL_S, time.monotonic()
    while not holds():
        if time.monotonic() > until_s:
            raise BoxError("machine", "another process pulls its image for an hour")
        if time.monotonic() - noted_at_s > PULL_LOOK_S:
            noted_at_s = time.monotonic()
            note()
        time.sleep(LOOK_S * 5)


def _await_pull(pulling: subprocess.Popen[bytes], note: Callable[[], object]) -> str:
    """Returns the words of a pull that has ended. note: called now and then."""
    until_s = time.monotonic() + PULL_S
    while True:
        try:
            _, said = pulling.communicate(timeout=PULL_LOOK_S)
            return said.decode("utf-8", "replace").strip()[-engines.TAIL_CHARACTERS :]
        except subprocess.TimeoutExpired:
            note()
        if time.monotonic() > until_s:
            pulling.kill()
            pulling.communicate()
            return "its image was not there after an hour"


def _last_error(said: str) -> str:
    """Returns the line that says why: podman prints a hint at its help below."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [it.partition("Error: ")[2] for it in lines if it.startswith("Error: ")]
    return [*(lines[-1:] or ["the engine gives no reason"]), *errors][-1]


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


# -- the Python of this machine, for images without one --------------------------------------------


def _standard_library() -> str:
    return sysconfig.get_path("stdlib")


def make_runtime(root: str) -> List[str]:
    """Returns the command of this machine's Python that works in any image: its loader is named,
    and its libraries lie beside it. Raises BoxError where it has no loader.
    """
    program = os.path.realpath(sys.executable)
    facts = [program, sys.version, os.stat(program).st_mtime]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    directory = os.path.join(root, f"python-{key}")
    loader, target = os.path.join(directory, "loader"), os.path.join(directory, "bin", "python3")
    command = [loader, "--library-path", os.path.join(directory, "libraries"), target]
    if os.path.exists(directory):
        return command
    found, libraries = _find_libraries()
    if not found:
        raise BoxError("container", "its Python has no loader that a container could use")
    making = f"{directory}.{os.getpid()}"
    library = os.path.basename(_standard_library())
    for part in ("bin", "libraries", os.path.join(sys.platlibdir, library)):
        os.makedirs(os.path.join(making, part), 0o700)
    shutil.copy2(found, os.path.join(making, "loader"))
    shutil.copy2(program, os.path.join(making, "bin", "python3"))
    for one in libraries:
        target_of = os.path.join(making, "libraries", os.path.basename(one))
        shutil.copy2(one, target_of)
        for alias in glob.glob(one.partition(".so")[0] + ".so*"):  # programs ask for a short name
            if alias != one and os.path.realpath(alias) == one:
                os.symlink(
                    os.path.basename(one), f"{os.path.dirname(target_of)}/{os.path.basename(alias)}"
                )
    try:
        os.rename(making, directory)
    except OSError:  # another process was first
        shutil.rmtree(making, ignore_errors=True)
    return command


def _find_libraries() -> Tuple[str, List[str]]:
    """Returns (the loader of Python, the libraries that it and its modules need). A new interpreter
    lists them: this one has loaded less.
    """
    text = "import sys\nfor name in %r:\n try: __import__(name)\n except ImportError: pass\n"
    text += "sys.stdout.write(open('/proc/self/maps').read())"
    code, output, _ = engines.call_engine([sys.executable, "-I", "-S", "-c", text % (MODULES,)])
    paths = {line[line.index("/") :] for line in output.splitlines() if "/" in line}
    top = _standard_library() + "/"
    mapped = sorted(it for it in paths if ".so" in os.path.basename(it) and it[: len(top)] != top)
    names = {os.path.basename(it): it for it in mapped}
    loader = next((it for name, it in names.items() if name.startswith("ld-")), "")
    needed = [it for name, it in names.items() if it != loader or name.startswith("ld-musl")]
    return (loader if code == 0 else ""), needed
