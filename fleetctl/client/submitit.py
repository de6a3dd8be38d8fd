"""The executor of submitit, for its users: `from fleetctl.client import submitit` in place of
`import submitit`.

`AutoExecutor` is an `Executor` whose options have submitit's names; a `Job` is the future of a
call. Options of Slurm that mean nothing here are warned about, and more than a node or a process
for a call is refused. Functions travel by import path, and not as pickles.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from typing import Any

from fleetctl.client.executor import Executor
from fleetctl.client.fleet import Fleet
from fleetctl.common.errors import UsageError

# Options of submitit, each with ours and the form of its value.
_OPTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "timeout_min": ("timeout", lambda minutes: int(minutes * 60)),
    "slurm_time": ("timeout", lambda minutes: int(minutes * 60)),
    "mem_gb": ("memory", lambda size: f"{size}Gi"),
    "slurm_mem": ("memory", lambda size: str(size).upper().removesuffix("B").rstrip("I") + "i"),
    "cpus_per_task": ("cpu", lambda count: count),
    "slurm_cpus_per_task": ("cpu", lambda count: count),
    "gpus_per_node": ("gpu", lambda count: f"any:{count}" if count else None),
    "slurm_gpus_per_node": ("gpu", lambda gpus: _parse_gpus(str(gpus))),
    "slurm_gres": ("gpu", lambda gpus: _parse_gpus(str(gpus))),
    "slurm_array_parallelism": ("parallelism", lambda count: count),
}
_ONE_ALONE = ("nodes", "slurm_nodes", "tasks_per_node", "slurm_ntasks_per_node")
_OURS = ("on", "gpu", "cpu", "memory", "image", "pip", "env", "secrets", "volumes", "timeout",
         "retries", "parallelism", "budget", "source")  # fmt: skip


class Job(Future[Any]):
    """The future of a call, with submitit's further names."""

    def results(self) -> list[Any]:
        """Returns the result of the call, of which there is one process."""
        return [self.result()]

    def wait(self) -> None:
        """Blocks until the call has ended, well or not."""
        with suppress(CancelledError):
            self.exception()

    @property
    def state(self) -> str:
        """Returns the state in Slurm's words."""
        if self.cancelled():
            return "CANCELLED"
        if not self.done():
            if self.running():
                return "RUNNING"
            return "PENDING"
        if self.exception() is None:
            return "COMPLETED"
        return "FAILED"


class AutoExecutor(Executor):
    """An executor with submitit's options. folder, cluster: taken, and not used: logs are those of
    `fleetctl logs`. fleet: as Executor has it.
    """

    def __init__(
        self,
        folder: object = None,
        cluster: str | None = None,
        fleet: Fleet | None = None,
    ) -> None:
        del folder, cluster
        super().__init__(fleet)
        self._given: dict[str, Any] = {}

    def update_parameters(self, **options: Any) -> None:
        """Sets options for later calls: submitit's, and those of `Executor`. Raises UsageError for
        more than one node or process.
        """
        ignored: list[str] = []
        for name, value in options.items():
            if name in _ONE_ALONE:
                if value not in (None, 1):
                    raise UsageError(
                        f"`{name}={value}`: a call is one process on one machine",
                        hint="several nodes are a TrainingRun: `fleetctl run --nodes 2 -- ...`",
                    )
            elif name in _OPTIONS:
                ours, parse = _OPTIONS[name]
                self._given[ours] = parse(value)
            elif name in _OURS:
                self._given[name] = value
            elif name != "name":
                ignored.append(name)
        if ignored:
            warnings.warn(f"without effect here: {', '.join(ignored)}", stacklevel=2)
        self.change_options(**self._given)

    def submit(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Job:
        """Returns the job of a call. Raises as `Executor.submit` does."""
        job = super().submit(fn, *args, **kwargs)
        assert isinstance(job, Job)
        return job

    def map_array(self, fn: Callable[..., Any], *iterables: Iterable[Any]) -> list[Job]:
        """Returns the jobs of the calls with an argument of each iterable, in order."""
        return [self.submit(fn, *arguments) for arguments in zip(*iterables, strict=False)]

    @contextmanager
    def batch(self, allow_implicit_submissions: bool = False) -> Iterator[None]:
        """Is there for its name: calls that are submitted together are a single job anyway."""
        del allow_implicit_submissions
        yield

    def make_future(self) -> Job:
        return Job()


def _parse_gpus(text: str) -> str:
    """Returns `A100:4` for `gpu:a100:4`, and `any:2` for `gpu:2` and `2`."""
    parts = [it for it in text.split(":") if it != "gpu"]
    count = parts.pop() if parts and parts[-1].isdigit() else "1"
    return f"{parts[0].upper() if parts else 'any'}:{count}"
