"""What a spec waits for before any of it begins: `dependsOn`, and the job whose results are its
tasks. Pure.
"""

from __future__ import annotations

from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.blocks.depends import Dependency
from fleetctl.specs.blocks.results import FromResults


def results_wanted(spec: object) -> FromResults | None:
    """What `tasks.fromResults` says."""
    found: FromResults | None = getattr(getattr(spec, "tasks", None), "from_results", None)
    return found


def needed_by(spec: Execution) -> tuple[Dependency, ...]:
    """The job that gives results must have succeeded, unless `dependsOn` says of it otherwise."""
    given = results_wanted(spec)
    if given is None or any(it.job == given.job for it in spec.depends_on):
        return spec.depends_on
    return (*spec.depends_on, Dependency(job=given.job))
