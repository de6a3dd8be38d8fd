"""Finds the revision that a resource's runs really had: called by providers whose runs all get the
same copy of a directory, or the same commit, from the resource's own directory.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.providers.sources import frozen_copy, pinning
from fleetctl.specs.blocks.template import Template


def revision_in(template: Template, job: Path) -> str:
    """Returns a commit, or the revision of a directory; "" while it is unknown. Never waits."""
    source = template.source
    if source is None:
        return ""
    if source.git is not None:
        # A function's containers have the commit cloned when it was made ready, not a run's commit.
        if template.is_function:
            return ""
        return pinning.known_commit(source.git, job)
    return frozen_copy.frozen_revision(source, job)
