"""A directory of this machine as it was when the first run of a template asked for it.

Called in a thread by providers that bring sources to sandboxes.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from hashlib import sha256
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.providers.paths import make_private
from fleetctl.providers.sources.revision import of_copy
from fleetctl.providers.sources.tree_copy import CopyRules, copy_tree
from fleetctl.specs.blocks.template import Source


def freeze_source(source: Source, job: Path) -> Path:
    """A copy in `job`, the directory of a resource's journals and logs; made once. Raises Refused
    for what is not a directory.
    """
    origin = Path(source.path or "")
    target = _copy_path(source, job)
    if target.exists():
        return target
    if not origin.is_dir():
        raise Refused(
            f"source.path `{origin}` is not a directory", hint="check the path in the manifest"
        )
    make_private(job)
    # Taken beside its target and renamed: a copy that exists is whole.
    taking = job / f".{target.name}.{os.getpid()}.{threading.get_ident()}"
    shutil.rmtree(taking, ignore_errors=True)
    copy_tree(origin, taking, CopyRules.of_project(source.exclude, follow=source.follow_links))
    taken = of_copy(taking).revision
    try:
        taking.rename(target)
        # After the copy: a copy without a revision file is one of unknown revision.
        _revision_path(target).write_text(taken, encoding="utf-8")
    except OSError:
        shutil.rmtree(taking)  # another start was first
    return target


def frozen_revision(source: Source, job: Path) -> str:
    """Returns the revision of the copy in `job`; "" while there is none, or when it is unknown."""
    try:
        return _revision_path(_copy_path(source, job)).read_text(encoding="utf-8")
    except OSError:
        return ""


def _copy_path(source: Source, job: Path) -> Path:
    follow = ["follow"] if source.follow_links else []
    facts = json.dumps([source.path, list(source.exclude), *follow])
    return job / f"source-{sha256(facts.encode()).hexdigest()[:16]}"


def _revision_path(target: Path) -> Path:
    return target.with_name(f"{target.name}.revision")
