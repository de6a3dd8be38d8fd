"""From the fork to the user's code: what a new process of a run does to itself.

Runs in the forked child only and never returns to the supervisor's code.
"""

from __future__ import annotations

# Without the enums of `signal`: turning numbers into them touches more memory than all of the rest.
import _signal  # type: ignore[import-not-found]
import json
import math
import os
import resource
import sys
from typing import TYPE_CHECKING, Any, NoReturn, Optional, Sequence

from fleetctl.guest.checkpoints.begin import begin
from fleetctl.guest.nodes.ray import launch
from fleetctl.guest.nodes.rayjob import lead_job
from fleetctl.guest.supervision.services.crew import lead
from fleetctl.guest.task.parameters import parameter_texts, parameter_variables, past_proxies
from fleetctl.guest.task.program import become as become_program
from fleetctl.guest.task.program import enter, guarded
from fleetctl.guest.task.serving import CHANNEL, serve
from fleetctl.guest.task.surroundings import Surroundings

from ..isolation import shortnames, spaces, syscalls
from . import cleaning, procs
from .reports.followers import checkpoints_at
from .reports.record import PRIVATE, TEMPORARY

if TYPE_CHECKING:
    from fleetctl.guest.wandb.trial import Trial

NOFILE_MAX = 65536
DESCRIPTORS_MAX = (
    4096  # the supervisor's own limit on open files, so that its child can close them all
)
WORD_BYTES_MAX = 65536  # a piece of the word on which all nodes begin


class Birth:
    """All that a new process needs, gathered by the supervisor before the fork."""

    def __init__(self, config: dict[str, Any], order: dict[str, Any], work: str, mark: int) -> None:
        self.config = config
        self.order = order
        self.work = work
        self.mark = mark
        self.fresh = True  # the work directory is still to be made
        self.serves = False  # it takes one task after another
        self.wandb: Optional[Trial] = None  # what its program tells wandb
        self.arguments: list[str] = []  # of its command, for the checkpoint that it goes on from


def become(birth: Birth, output: int, channel: int, null: int) -> NoReturn:
    """Turn the forked copy of the supervisor into the task."""

    def whole() -> NoReturn:
        _detach(birth, output, channel, null)
        _limit_cpu(birth.order)
        if birth.fresh:
            _make_work(birth)
        if birth.config["per_run_mounts"] and birth.config["namespaces"]:
            _confine(birth)
        os.closerange(CHANNEL + 1, DESCRIPTORS_MAX)
        enter(_start_directory(birth), birth.config["workdir"])
        waits, rank = birth.order.get("waits"), birth.order.get("rank")
        if waits and rank:
            birth.order["resumed"] = _await_others()
        environment = _begun(birth)
        if waits and not rank:
            _await_others()
        if birth.order.get("services"):
            _lead_services(birth, environment)
        _work(birth, environment)

    guarded(whole, _tell)


def _lead_services(birth: Birth, environment: dict[str, str]) -> NoReturn:
    lead(
        birth.order["services"],
        {**os.environ, **environment},
        os.getcwd(),
        lambda ports: _work(birth, {**environment, **ports}),
        grace_s=birth.order["grace_s"],
        tell=_tell,
    )


def _work(birth: Birth, environment: dict[str, str]) -> NoReturn:
    known = {**os.environ, **environment}
    if birth.order.get("ray_job"):
        lead_job(birth.order["ray_job"], birth.order["argv"], known, _tell)
    if birth.order.get("ray"):
        launch(birth.order["ray"], known, lambda: _do(birth, environment), _tell)
    _do(birth, environment)


def _do(birth: Birth, environment: dict[str, str]) -> NoReturn:
    if birth.config["mode"] == "python":
        _run_python(birth, environment)
    _execute(birth, environment)
    raise AssertionError  # it has become the program


def _await_others() -> Any:
    """Until all nodes of the attempt are ready; gone when they never will be. Which checkpoint node
    0 goes on from: it alone looks for one, and moves aside what misleads.
    """
    _tell({"e": "ready"})
    report = b""
    while not report.endswith(b"\n"):
        try:
            data = os.read(CHANNEL, WORD_BYTES_MAX)
        except OSError:
            data = b""
        if not data:
            os._exit(0)
        report += data
    return json.loads(report)


def visit(birth: Birth, streams: Sequence[int], *, terminal: bool) -> NoReturn:
    """Turn the forked copy of the supervisor into a person's command beside the task."""

    def whole() -> NoReturn:
        _leave_supervisor(birth)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(len(streams), DESCRIPTORS_MAX)
        if terminal:
            import fcntl
            import termios

            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if birth.config["per_run_mounts"] and birth.config["namespaces"]:
            _confine(birth)
        enter(_start_directory(birth), birth.config["workdir"])
        _execute(birth, _environment(birth))
        raise AssertionError  # it has become the program

    guarded(whole)


def _detach(birth: Birth, output: int, channel: int, null: int) -> None:
    _leave_supervisor(birth)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(channel, CHANNEL, inheritable=False)


def _leave_supervisor(birth: Birth) -> None:
    """A session, signals and limits of its own."""
    os.setsid()
    os.umask(0o022)  # what programs expect; the directories above are private
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    if sys.platform == "linux" and not birth.config["namespaces"]:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, _signal.SIGKILL)
    for which, value in birth.config["rlimits"]:
        resource.setrlimit(which, (value, value))
    if sys.platform == "linux":
        resource.setrlimit(procs.RLIMIT_LOCKS, (birth.mark, birth.mark))


def _limit_cpu(order: dict[str, Any]) -> None:
    """Of this run; a worker has used some for the runs before."""
    if order["cpu_s"]:
        used_s = sum(os.times()[:2])
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        soft = math.ceil(used_s) + order["cpu_s"]
        resource.setrlimit(resource.RLIMIT_CPU, (within(soft, hard), hard))


def within(value: int, hard: int) -> int:
    """A soft limit that the hard one allows."""
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def rlimits(limits: dict[str, Any]) -> list[tuple[int, int]]:
    """(which, value) for a run; computed once a supervisor."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: NOFILE_MAX,
        resource.RLIMIT_NPROC: limits["processes"],
        resource.RLIMIT_DATA: limits["data"] or None,
        resource.RLIMIT_FSIZE: limits["file"] or None,
    }
    found = []
    for which, value in wanted.items():
        if value is not None:
            hard = resource.getrlimit(which)[1]
            found.append((which, within(value, hard)))
    return found


def _make_work(birth: Birth) -> None:
    cleaning.make(birth.work)
    source = birth.config["source"]
    if source:
        import shutil  # not before the fork: it loads libraries that few tasks need

        shutil.copytree(source["dir"], os.path.join(birth.work, source["name"]), symlinks=True)


def _confine(birth: Birth) -> None:
    """Where the source has a place of its own, each run mounts its copy there, and only then is
    confined.
    """
    source = birth.config["source"]
    spaces.mount_source(os.path.join(birth.work, source["name"]), source["mount_path"])
    # Landlock judges by the place where a thing is seen, so the new place needs a rule of its own.
    mounted = os.open(source["mount_path"], os.O_PATH)
    spaces.confine([*birth.config["places"], mounted])


def _start_directory(birth: Birth) -> str:
    config, source = birth.config, birth.config["source"]
    start = birth.work
    if source:
        start = source["mount_path"] or os.path.join(birth.work, source["name"])
    return os.path.join(start, config["workdir"]) if config["workdir"] else str(start)


def _environment(birth: Birth) -> dict[str, str]:
    """What this run adds to the template's environment, which the supervisor has made its own.

    Also writes the parameters' file.
    """
    order, private = birth.order, f"{birth.work}/{PRIVATE}"
    parameters = f"{private}/params.json"
    _overwrite(parameters, order["params_text"].encode())
    environment = {
        "HOME": birth.work,
        "TMPDIR": shortnames.name(
            birth.config["short_names"], birth.work, f"{private}/{TEMPORARY}"
        ),
        "FLEETCTL_PARAMS": parameters,
        "FLEETCTL_RESULT": f"{private}/result.json",
        "FLEETCTL_METRICS": f"{private}/metrics.jsonl",
        "FLEETCTL_RUN": order["run"],
        "FLEETCTL_ATTEMPT": str(order["attempt"]),
        "JOB_COMPLETION_INDEX": str(order["index"]),
        "CUDA_VISIBLE_DEVICES": ",".join(str(device) for device in order["gpus"]),
        **order["secrets"],
        **order.get("variables", {}),
    }
    if birth.config["mode"] == "python":
        environment.update(parameter_texts(order["params"]))
    else:
        environment.update(parameter_variables(order["params"], private))
    if birth.wandb is not None:
        birth.wandb.prepare()
        environment.update(birth.wandb.variables)
    environment.update(past_proxies({**os.environ, **environment}))
    return environment


def _begun(birth: Birth) -> dict[str, str]:
    """The same, with what the run goes on from. Once a run: what is unfinished is moved aside."""
    environment, asked = _environment(birth), birth.order.get("checkpoint")
    if birth.order.get("library"):
        root = checkpoints_at(birth.config, asked["path"]) if asked else ""
        library = f"{birth.work}/{PRIVATE}/python"
        known = {**os.environ, **environment}
        added, birth.arguments = begin(birth.order, root, library, known, _tell)
        environment.update(added)
    return environment


def _overwrite(path: str, data: bytes) -> None:
    """Never truncated to nothing first: ext4 would then flush the file when it is closed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, 0o600)
    os.write(handle, data)
    os.ftruncate(handle, len(data))
    os.close(handle)


def _execute(birth: Birth, environment: dict[str, str]) -> None:
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    argv = [*birth.order["argv"], *birth.arguments]
    become_program(argv, {**os.environ, **environment})


def _run_python(birth: Birth, environment: dict[str, str]) -> NoReturn:
    config = birth.config
    surroundings = Surroundings(os.environ) if birth.serves else None
    _set_variables(environment)
    sandbox = config["guest_sandbox"]
    code = config["compiled"] or config["code"]
    exit_code = sandbox.run(code, birth.order["params"], _tell)
    if surroundings is not None:

        def run(line: str) -> int:
            birth.order = json.loads(line)
            _limit_cpu(birth.order)
            _set_variables(_begun(birth))
            return int(sandbox.run(code, birth.order["params"], _tell))

        exit_code = serve(exit_code, run, _tell, surroundings)
    config["guest_module"].leave(exit_code)
    raise AssertionError  # leave() does not return


def _set_variables(environment: dict[str, str]) -> None:
    """As `os.environ.update` does, without a call of Python for each name and each value."""
    table = os.environ._data  # type: ignore[attr-defined]
    for name, value in environment.items():
        os.putenv(name, value)
        table[name.encode("utf-8", "surrogateescape")] = value.encode("utf-8", "surrogateescape")


def _tell(event: dict[str, Any]) -> None:
    """One line to the supervisor. A result comes as JSON text; writing it anew would touch much
    memory for nothing.
    """
    result = event.get("json")
    line = json.dumps(event) if result is None else '{"e":"result","value":' + result + "}"
    data = memoryview((line + "\n").encode())
    while data:
        data = data[os.write(CHANNEL, data) :]
