"""The processes of a run: its preparations, and the task itself. Called by attempt.py."""

from __future__ import annotations

import os

from fleetctl.guest.remote.place import start_directory
from fleetctl.guest.remote.process.child import begun_of, execute, send_line
from fleetctl.guest.remote.process.leader import Leader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn, Optional, Protocol

    from fleetctl.guest.remote.loop import Loop

    class Workers(Protocol):
        """A part of the sandbox that holds the worker which continues after its task."""

        loop: Loop
        worker: Optional[Leader]


def preparation(
    loop: Loop,
    order: dict[str, Any],
    argv: list[str],
    variables: dict[str, str],
    output: int,
) -> Leader:
    """Starts a preparation. output: the descriptor of its output, as in all functions here."""
    directory = os.getcwd()
    return Leader(loop, lambda: execute(argv, variables, directory, order["workdir"]), output)


def program(
    loop: Loop,
    order: dict[str, Any],
    variables: dict[str, str],
    directory: str,
    output: int,
) -> Leader:
    def work(variables: dict[str, str]) -> NoReturn:
        if order.get("ray"):
            _with_ray(order, variables, directory)
        own, more = begun_of(order, variables)
        if order.get("ray_job"):
            from fleetctl.guest.nodes.rayjob import lead_job

            lead_job(order["ray_job"], order["argv"], {**variables, **own}, send_line)
        execute([*order["argv"], *more], {**variables, **own}, directory, order["workdir"])

    return Leader(loop, lambda: _beside_services(order, variables, directory, work), output)


def python(
    workers: Workers,
    order: dict[str, Any],
    variables: dict[str, str],
    output: int,
) -> Leader:
    """Begins Python work in the living worker, or in a new process."""
    from fleetctl.guest.remote.process.worker import message, serves, work

    worker = workers.worker
    if worker is not None:
        worker.hand(message(order, variables), output)
        return worker
    directory = start_directory(order)

    def whole() -> NoReturn:
        _beside_services(order, variables, directory, lambda known: work(order, known, directory))

    worker = Leader(workers.loop, whole, output)
    workers.worker = worker if serves(order) else None
    return worker


def _beside_services(
    order: dict[str, Any],
    variables: dict[str, str],
    directory: str,
    work: Callable[[dict[str, str]], NoReturn],
) -> NoReturn:
    """Does the work once its services are ready, where it has any. work: takes the variables."""
    services = order.get("services")
    if services:
        from fleetctl.guest.supervision.services.crew import lead

        lead(
            services,
            variables,
            directory,
            lambda ports: work({**variables, **ports}),
            grace_s=order["grace_s"],
            tell=send_line,
        )
    work(variables)
    raise AssertionError  # it has become the program


def _with_ray(
    order: dict[str, Any],
    variables: dict[str, str],
    directory: str,
) -> NoReturn:
    """Does the work inside a cluster of its own."""
    from fleetctl.guest.nodes.ray import launch, own_variables

    whole = {**variables, **own_variables(order["ray"])}
    # Before the cluster, whose workers have the variables that it was started with.
    own, more = begun_of(order, whole)
    known = {**whole, **own}

    def work() -> NoReturn:
        execute([*order["argv"], *more], known, directory, order["workdir"])

    launch(order["ray"], known, work, send_line)
