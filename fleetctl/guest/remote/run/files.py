"""Makes the readers of a run's reports, and the records of its services. Called by attempt.py."""

from __future__ import annotations

import os

from fleetctl.guest.remote import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from fleetctl.guest.journal.masking import Masking
    from fleetctl.guest.reports import RunReports
    from fleetctl.guest.supervision.services.process import ServiceRecords


def start_readers(
    reports: RunReports,
    order: dict[str, Any],
    commit: Callable[[list[str], Callable[[str], None]], None],
    variables: Callable[[], dict[str, str]],
) -> None:
    """Starts the readers of a program's reports; called before it starts. commit: makes mounts
    durable and calls back with the failure; variables: returns those of its environment.
    """
    if order.get("metrics"):
        reports.follow_metrics(order["metrics"], place.start_directory(order))
    asked = order.get("checkpoint")
    if asked and asked["format"] != "none":
        from fleetctl.guest.checkpoints.begin import find_mounts

        held = find_mounts(asked["path"], order["volumes"])
        mounts = [mount for mount in order["sync"] if mount in held]

        def committed(then: Callable[[str], None]) -> None:
            commit(mounts, then)

        commits = committed if mounts else None
        reports.watch_checkpoints(order, asked["path"], variables, commits)
    if order.get("samples"):
        reports.sample_gpus(None)
    if order.get("progress"):
        reports.limit_stalls(order["progress"])


def start_trial(
    reports: RunReports, order: dict[str, Any], variables: dict[str, str], directory: str
) -> dict[str, str]:
    """Returns variables for a program that may read its parameters from wandb; called before it
    starts. variables: all its other ones; directory: where it begins.
    """
    from fleetctl.guest.wandb.trial import Trial

    trial = Trial(order, os.path.abspath(place.FILES), variables, directory)
    trial.prepare()
    trial.begin()
    reports.followers.append(trial)
    return trial.variables


def services_of(
    order: dict[str, Any],
    runs: int,
    masking: Optional[Masking],
) -> ServiceRecords:
    """Returns the records of its services' output. The stream of the run finds their names in a
    file.
    """
    from fleetctl.guest.supervision.services.process import ServiceRecords

    names = [one["name"] for one in order["services"]]
    with open(place.services_path(order["run"]), "w", encoding="ascii") as file:
        file.write("".join(f"{name}\n" for name in names))
    return ServiceRecords(
        names,
        runs,
        order["run"],
        order["log_bytes_max"],
        masking,
    )


def remove_task_file(name: str) -> None:
    """Removes a file of a task, so that the next task of a sandbox does not hand it in."""
    path = f"{place.FILES}/{name}"
    if os.path.lexists(path):
        from fleetctl.guest.journal.results import remove_result

        remove_result(path)
