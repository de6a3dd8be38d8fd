"""Turns a forked process into a run: from the fork to the user's code.

Runs in the forked child only and never returns to the supervisor's code.
"""

from __future__ import annotations

# Without the enums of `signal`: turning numbers into them touches more memory than all of the rest.
import _signal
import _socket
import json
import math
import os
import resource
import sys
from typing import TYPE_CHECKING, Any, NoReturn, Optional, Sequence

from fleetctl.guest.checkpoints.begin import begin_training
from fleetctl.guest.nodes.ray import launch_node
from fleetctl.guest.nodes.rayjob import lead_job
from fleetctl.guest.outputs.walk import file_clock_ns
from fleetctl.guest.supervision.processes import carry_mark
from fleetctl.guest.supervision.services.crew import lead_services
from fleetctl.guest.task.parameters import (
    bypass_proxies,
    name_inputs,
    parameter_texts,
    parameter_variables,
    write_inputs,
)
from fleetctl.guest.task.program import enter_directory, run_guarded
from fleetctl.guest.task.program import replace_process as become_program
from fleetctl.guest.task.serving import CHANNEL, Surroundings, serve_tasks

from ..isolation import mounts, spaces, syscalls
from . import cleaning
from .cleaning import lay_source
from .concluding import PRIVATE, TEMPORARY
from .hearing import checkpoints_at

if TYPE_CHECKING:
    from fleetctl.guest.wandb.trial import Trial

    from .sandbox import GivenWork

NOFILE_MAX = 65536
DESCRIPTORS_MAX = (
    4096  # the supervisor's own limit on open files, so that its child can close them all
)
WORD_BYTES_MAX = 65536  # a piece of the word on which all nodes begin


class Birth:
    """The data that a new process needs, gathered by the supervisor before the fork."""

    def __init__(
        self,
        config: dict[str, Any],
        order: dict[str, Any],
        work: str,
        mark: int,
    ) -> None:
        self.config = config
        self.order = order
        self.work = work
        self.mark = mark
        self.fresh = True  # the work directory is still to be made
        self.given: Optional[GivenWork] = None  # by the janitor
        self.serves = False  # it takes one task after another
        self.wandb: Optional[Trial] = None  # reads the reports of its program to wandb
        self.arguments: list[str] = []  # of its command, for the checkpoint that it goes on from


def become_task(
    birth: Birth,
    output: int,
    channel: int,
    null: int,
) -> NoReturn:
    """Turns the forked copy of the supervisor into the task."""

    def whole() -> NoReturn:
        _detach_process(birth, output, channel, null)
        _limit_cpu(birth.order)
        if birth.fresh:
            _make_work(birth)
        if birth.config["per_run_mounts"] and birth.config["namespaces"]:
            _confine_run(birth)
        os.closerange(CHANNEL + 1, DESCRIPTORS_MAX)
        enter_directory(_start_directory(birth), birth.config["workdir"])
        waits = birth.order.get("waits")
        rank = birth.order.get("rank")
        if waits and rank:
            birth.order["resumed"] = _await_others()
        environment = _begin_environment(birth)
        if waits and not rank:
            _await_others()
        if birth.order.get("services"):
            _lead_services(birth, environment)
        _do_work(birth, environment)

    run_guarded(whole, _tell_supervisor)


def _lead_services(birth: Birth, environment: dict[str, str]) -> NoReturn:
    lead_services(
        birth.order["services"],
        {**os.environ, **environment},
        os.getcwd(),
        lambda ports: _do_work(birth, {**environment, **ports}),
        grace_s=birth.order["grace_s"],
        tell=_tell_supervisor,
    )


def _do_work(birth: Birth, environment: dict[str, str]) -> NoReturn:
    known = {**os.environ, **environment}
    if birth.order.get("ray_job"):
        lead_job(birth.order["ray_job"], birth.order["argv"], known, _tell_supervisor)
    if birth.order.get("ray"):
        launch_node(
            birth.order["ray"], known, lambda: _run_task(birth, environment), _tell_supervisor
        )
    _run_task(birth, environment)


def _run_task(birth: Birth, environment: dict[str, str]) -> NoReturn:
    if birth.config["mode"] == "python":
        _run_python(birth, environment)
    _execute_program(birth, environment)
    raise AssertionError  # it has become the program


def _await_others() -> Any:
    """Waits until all nodes of the attempt are ready; exits when they never will be. Returns the
    checkpoint that node 0 goes on from: node 0 alone looks for one, and moves misleading ones
    aside.
    """
    _tell_supervisor({"e": "ready"})
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


def become_visit(
    birth: Birth,
    streams: Sequence[int],
    *,
    terminal: bool,
) -> NoReturn:
    """Turns the forked copy of the supervisor into a user's command beside the task."""

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
            _confine_run(birth)
        enter_directory(_start_directory(birth), birth.config["workdir"])
        _execute_program(birth, _run_environment(birth))
        raise AssertionError  # it has become the program

    run_guarded(whole)


def _detach_process(
    birth: Birth,
    output: int,
    channel: int,
    null: int,
) -> None:
    _leave_supervisor(birth)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(channel, CHANNEL, inheritable=False)


def _leave_supervisor(birth: Birth) -> None:
    """A session, signals and limits of its own."""
    os.setsid()
    os.umask(0o022)  # the usual one; the directories above are private
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    if sys.platform == "linux" and not birth.config["namespaces"]:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, _signal.SIGKILL)
    for which, value in birth.config["rlimits"]:
        resource.setrlimit(which, (value, value))
    if sys.platform == "linux":
        carry_mark(birth.mark)


def _limit_cpu(order: dict[str, Any]) -> None:
    """Limits the CPU of this run; a worker has used some for the runs before."""
    if order["cpu_s"]:
        used_s = sum(os.times()[:2])
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        soft = math.ceil(used_s) + order["cpu_s"]
        resource.setrlimit(resource.RLIMIT_CPU, (clamp_limit(soft, hard), hard))


def clamp_limit(value: int, hard: int) -> int:
    """A soft limit that the hard one allows."""
    if hard == resource.RLIM_INFINITY:
        return value
    return min(value, hard)


def compute_rlimits(limits: dict[str, Any]) -> list[tuple[int, int]]:
    """Returns (which, value) for a run; computed once a supervisor."""
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
            found.append((which, clamp_limit(value, hard)))
    return found


def _make_work(birth: Birth) -> None:
    source = birth.config["source"]
    given = birth.given
    if given is not None and given.used:
        if cleaning.restore_work(given.used, source, given.given_ns):
            os.rename(given.used, birth.work)
            return
        cleaning.remove_tree(given.used)
    cleaning.make_work_dir(birth.work)
    if source:
        lay_source(source["dir"], os.path.join(birth.work, source["name"]))


def _confine_run(birth: Birth) -> None:
    """Confines the run. Where the source has a mount path of its own, each run mounts its copy
    there, and only then is confined.
    """
    source = birth.config["source"]
    spaces.mount_source(os.path.join(birth.work, source["name"]), source["mount_path"])
    # Landlock judges by the path at which a file is seen, so the new path needs a rule of its own.
    mounted = os.open(source["mount_path"], os.O_PATH)
    spaces.drop_privileges([*birth.config["places"], mounted])


def _start_directory(birth: Birth) -> str:
    config, source = birth.config, birth.config["source"]
    start = birth.work
    if source:
        start = source["mount_path"] or os.path.join(birth.work, source["name"])
    if config["workdir"]:
        return os.path.join(start, config["workdir"])
    return str(start)


def _run_environment(birth: Birth) -> dict[str, str]:
    """Returns this run's additions to the template's environment, which the supervisor has made its
    own.

    Also writes the parameters' file.
    """
    order = birth.order
    private = f"{birth.work}/{PRIVATE}"
    roots = {it["mount"]: it["root"] for it in birth.config["guest_volumes"]}
    inputs = name_inputs(order, private, roots)
    parameters = f"{private}/params.json"
    _overwrite_file(parameters, order["params_text"].encode())
    environment = {
        "HOME": birth.work,
        "TMPDIR": mounts.short_name(
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
    environment.update(inputs)
    if birth.wandb is not None:
        birth.wandb.prepare()
        environment.update(birth.wandb.variables)
    environment.update(bypass_proxies({**os.environ, **environment}))
    return environment


def _begin_environment(birth: Birth) -> dict[str, str]:
    """Returns the run's environment with the checkpoint that it goes on from. Once a run:
    unfinished checkpoints are moved aside, and the task gets its files.
    """
    write_inputs(birth.order, f"{birth.work}/{PRIVATE}")
    environment = _run_environment(birth)
    asked = birth.order.get("checkpoint")
    # What a source brought along is older, and is not what the run writes.
    copied = birth.fresh and birth.config["source"] is not None
    began_ns = file_clock_ns(environment["FLEETCTL_PARAMS"], past=copied)
    _tell_supervisor({"e": "began", "ns": began_ns})
    if birth.order.get("library"):
        root = checkpoints_at(birth.config, asked["path"]) if asked else ""
        library = f"{birth.work}/{PRIVATE}/python"
        known = {**os.environ, **environment}
        added, birth.arguments = begin_training(
            birth.order,
            root,
            library,
            known,
            _tell_supervisor,
        )
        environment.update(added)
    return {**_own_port({**os.environ, **environment}), **environment}


def _own_port(known: dict[str, str]) -> dict[str, str]:
    """Returns a port for a launcher of one node: tasks share this machine, and launchers without a
    port take 29500. No other variable of a rendezvous is set, or plain scripts would become
    distributed.
    """
    names = ("MASTER_PORT", "PET_MASTER_PORT")
    if any(name in known for name in names):
        return {}
    try:
        free = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
    except OSError:
        return {}  # no descriptor or no port left: the task may need neither
    return dict.fromkeys(names, port)


def _overwrite_file(path: str, data: bytes) -> None:
    """Overwrites a file. Never truncated to zero first: ext4 would then flush the file when it is
    closed.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, 0o600)
    os.write(handle, data)
    os.ftruncate(handle, len(data))
    os.close(handle)


def _execute_program(birth: Birth, environment: dict[str, str]) -> None:
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    argv = [*birth.order["argv"], *birth.arguments]
    become_program(argv, {**os.environ, **environment})


def _run_python(birth: Birth, environment: dict[str, str]) -> NoReturn:
    config = birth.config
    surroundings = Surroundings(os.environ) if birth.serves else None
    for path in sys.path:
        if not os.path.isabs(path):
            # The supervisor's cached look-ups were for its own directory.
            sys.path_importer_cache.pop(path, None)
    _set_variables(environment)
    sandbox = config["guest_sandbox"]
    code = config["compiled"] or config["code"]
    exit_code = sandbox.run(code, birth.order["params"], _tell_supervisor)
    if surroundings is not None:

        def run(line: str) -> int:
            birth.order = json.loads(line)
            birth.fresh = False
            _limit_cpu(birth.order)
            _set_variables(_begin_environment(birth))
            return int(sandbox.run(code, birth.order["params"], _tell_supervisor))

        exit_code = serve_tasks(exit_code, run, _tell_supervisor, surroundings)
    config["guest_module"].exit_process(exit_code)
    raise AssertionError  # exit_process() does not return


def _set_variables(environment: dict[str, str]) -> None:
    """Updates the environment as `os.environ.update` does, without a call of Python for each name
    and each value.
    """
    table = os.environ._data  # type: ignore[attr-defined]
    for name, value in environment.items():
        os.putenv(name, value)
        table[name.encode("utf-8", "surrogateescape")] = value.encode("utf-8", "surrogateescape")


def _tell_supervisor(event: dict[str, Any]) -> None:
    """Sends one line to the supervisor. A result comes as JSON text; writing it again would touch
    much memory in vain.
    """
    result = event.get("json")
    line = json.dumps(event) if result is None else '{"e":"result","value":' + result + "}"
    data = memoryview((line + "\n").encode())
    while data:
        data = data[os.write(CHANNEL, data) :]
