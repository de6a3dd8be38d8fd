"""Lists the objects that a spec waits for before it begins: `dependsOn`, and the job whose results
are its tasks. Pure.
"""

from __future__ import annotations

from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.depends import Dependency
from fleetctl.specs.blocks.from_results import FromResults


def find_requested_results(spec: object) -> FromResults | None:
    """Returns the `tasks.fromResults` of a spec."""
    found: FromResults | None = getattr(getattr(spec, "tasks", None), "from_results", None)
    return found


def needed_by(spec: WorkSpec) -> tuple[Dependency, ...]:
    """Returns the dependencies. The job that gives results must have succeeded, unless `dependsOn`
    has another condition for it.
    """
    given = find_requested_results(spec)
    if given is None or any(it.job == given.job for it in spec.depends_on):
        return spec.depends_on
    return (*spec.depends_on, Dependency(job=given.job))
