"""Refuses to write through links that lie in the target directory of a copy.

The names below that directory come from a task or a volume: one that meets a link of the user's
would be written to wherever the link leads. Only the target that the user names may be a link. Used
by `cp` out of tasks (tar.py) and out of volumes (cp_rules.py).
"""

from __future__ import annotations

import os
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.common.text import escape_line


def refuse_links(here: Path, top: Path) -> None:
    """Raises Refused where `here`, or a directory between it and `top`, is a link to a directory.
    A link to a file is no obstacle: the new file takes its place.

    here: the path to write, at or below `top`. top: the target as the user named it.
    """
    path = here
    while path != top:
        # Of a name that is too long for this machine, Path.is_symlink would raise.
        if os.path.islink(path) and path.is_dir():
            raise Refused(
                f"`{escape_line(str(path))}` is a link to `{escape_line(str(path.readlink()))}`, "
                "and nothing is copied through links",
                hint="name that directory as the target, or remove the link",
            )
        path = path.parent
