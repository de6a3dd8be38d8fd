"""What a provider's package says of itself in its `plugin.py`. Imports nothing: lists come through
here.
"""

from __future__ import annotations

from typing import NamedTuple


class Server(NamedTuple):
    """Whose clock `doctor` looks at. credential: the variable without which nobody asks; named: the
    variable that names another server.
    """

    credential: str
    url: str
    named: str


class Plugin(NamedTuple):
    """Where each part of a provider is, as `module:name`, imported when it is needed.

    backend: built with (home, store_id=, notify=), a Backend; and with account= unless there is but
    one account of it.
    volume_files: with (home, account, store_id=), VolumeFiles; what `cp`, `ls` and `rm` reach
    without a controller. orphans: with (home, account), Orphans. exec: with (home, account),
    Entering; how `exec`, `cp` and `port-forward` get in. check: a Check, for `doctor`.
    session: an OpenSession, and session_end: an EndSession, for interpreters. kept: called with
    (home, uid, run), where a task's own files outlive it. listed_bytes: called with (home, volume),
    where it costs nearly nothing. caches: with (home), Caches; what it keeps here for the next use.
    sdk: the package that its extra installs. Empty is what it has nothing for.
    """

    backend: str
    orphans: str
    check: str
    volume_files: str = ""
    exec: str = ""
    session: str = ""
    session_end: str = ""
    kept: str = ""
    listed_bytes: str = ""
    caches: str = ""
    sdk: str = ""
    server: Server | None = None
