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
from fleetctl.providers.sources.tree import Rules, take
from fleetctl.specs.blocks.template import Source


def frozen(source: Source, job: Path) -> Path:
    """A copy in `job`, the directory of a resource's journals and logs; made once. Raises Refused
    for what is not a directory.
    """
    origin = Path(source.path or "")
    target = _place(source, job)
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
    take(origin, taking, Rules.of_project(source.exclude, follow=source.follow_links))
    taken = of_copy(taking).revision
    try:
        taking.rename(target)
        # After it: a copy whose revision was not told is one that nobody knows.
        _note(target).write_text(taken, encoding="utf-8")
    except OSError:
        shutil.rmtree(taking)  # another start was first
    return target


def revision(source: Source, job: Path) -> str:
    """What the copy in `job` holds; empty while there is none, or when it is not known."""
    try:
        return _note(_place(source, job)).read_text(encoding="utf-8")
    except OSError:
        return ""


def _place(source: Source, job: Path) -> Path:
    follow = ["follow"] if source.follow_links else []
    facts = json.dumps([source.path, list(source.exclude), *follow])
    return job / f"source-{sha256(facts.encode()).hexdigest()[:16]}"


def _note(target: Path) -> Path:
    return target.with_name(f"{target.name}.revision")
