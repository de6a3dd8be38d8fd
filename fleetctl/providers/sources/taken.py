"""What the source of a resource's runs really was: called by providers whose runs all get the same
copy of a directory, or the same commit, from the resource's own directory.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.providers.sources import frozen, pinning
from fleetctl.specs.blocks.template import Template


def revision_in(template: Template, job: Path) -> str:
    """A commit, or what a directory held; empty while nobody knows. Nothing is waited for."""
    source = template.source
    if source is None:
        return ""
    if source.git is not None:
        # A function's containers have what was cloned when it was made ready, not what runs asked.
        return "" if template.is_function else pinning.known(source.git, job)
    return frozen.revision(source, job)
