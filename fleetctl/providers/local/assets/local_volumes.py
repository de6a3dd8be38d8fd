"""Removing what provider `local` keeps on disk: volumes, and what the runs of a resource left
behind.

Called by the provider in a thread; directories may be large.
"""

from __future__ import annotations

import os
import time

from fleetctl.common.errors import Unavailable
from fleetctl.providers.local import supervisor_locks
from fleetctl.providers.local.local_layout import LocalLayout, uid_of
from fleetctl.providers.local.supervisor.isolation import shortnames
from fleetctl.providers.local.supervisor.run.cleaning import remove_tree
from fleetctl.providers.rundir.shared_contents import contents_of, release_contents

LEAVE_S = 10.0  # for a supervisor without runs to leave after it was asked to
PAUSE_S = 0.02


def delete_volume(layout: LocalLayout, name: str) -> None:
    """Deletes a volume. It is renamed first, so that a crash leaves it whole or gone."""
    path = layout.volume(name)
    doomed = path.with_name(f".removing-{name}")
    for one in (doomed, path):
        if one is path and path.exists():
            path.rename(doomed)
        if doomed.exists():
            remove_tree(str(doomed))
    if doomed.exists():
        raise Unavailable(f"volume `{name}` cannot be removed completely", hint=f"look at {doomed}")


def remove_scratch(
    layout: LocalLayout,
    uid: str,
    keep_logs: bool,
) -> None:
    """Deletes work directories and supervisors of a resource, and journals and logs unless they are
    kept.
    """
    names = os.listdir(layout.supervisors) if layout.supervisors.exists() else []
    for name in names:
        if uid_of(name) == uid:
            _wait_until_free(layout, name)
            remove_tree(str(layout.supervisor(name)))
            shortnames.remove_names(str(layout.supervisor(name)))
    job = layout.job(uid)
    contents = set() if keep_logs else contents_of(job)
    for doomed in (layout.work(uid), layout.inputs(uid)) if keep_logs else (job,):
        if doomed.exists():
            remove_tree(str(doomed))
    release_contents(job.parents[1], contents)
    if keep_logs or not job.exists():
        return
    raise Unavailable(
        f"the scratch space of `{uid}` cannot be removed completely", hint=f"look at {job}"
    )


def _wait_until_free(layout: LocalLayout, name: str) -> None:
    deadline = time.monotonic() + LEAVE_S
    while not supervisor_locks.lock_is_free(layout.supervisor(name)):
        if time.monotonic() > deadline:
            raise Unavailable(f"supervisor `{name}` still runs something", retry_after_s=1.0)
        time.sleep(PAUSE_S)
