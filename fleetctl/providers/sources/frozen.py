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

from fleetctl.errors import Refused
from fleetctl.providers.rundir.places import make_private
from fleetctl.providers.sources.tree import Rules, take
from specs.template import Source


def frozen(source: Source, job: Path) -> Path:
    """A copy in `job`, the directory of a resource's journals and logs; made once. Raises Refused
    for what is no directory.
    """
    origin = Path(source.path or "")
    facts = json.dumps([source.path, list(source.exclude)])
    target = job / f"source-{sha256(facts.encode()).hexdigest()[:16]}"
    if target.exists():
        return target
    if not origin.is_dir():
        raise Refused(
            f"source.path `{origin}` is not a directory", hint="check the path in the manifest"
        )
    make_private(job)
    # Taken beside its place and renamed: a copy that exists is whole.
    taking = job / f".{target.name}.{os.getpid()}.{threading.get_ident()}"
    shutil.rmtree(taking, ignore_errors=True)
    take(origin, taking, Rules.of_project(source.exclude))
    try:
        taking.rename(target)
    except OSError:
        shutil.rmtree(taking)  # another start was first
    return target
