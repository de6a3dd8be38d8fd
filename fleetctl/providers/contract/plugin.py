"""The description of a provider's package in its `plugin.py`. Imports no heavy module: lists come
through here.
"""

from __future__ import annotations

from typing import NamedTuple

from fleetctl.specs.builtin import BuiltInProvider


class ProviderServer(NamedTuple):
    """The server whose clock `doctor` compares. credential: the variable without which it is not
    called; named: the variable that names another server.
    """

    credential: str
    url: str
    named: str


class Plugin(NamedTuple):
    """The part of a provider for each use, as `module:name`, imported when it is needed.

    backend: built with (home, store_id=, notify=), a Backend; and with account= unless the
    provider has a single account.
    volume_files: with (home, account, store_id=), VolumeFiles; used by `cp`, `ls` and `rm`
    without a controller, and for `tasks.fromFiles`. orphans: with
    (home, account), Orphans. exec: with (home, account), Entering, used by `exec`, `cp` and
    `port-forward`. check: a Check, for `doctor`.
    session: an OpenSession, and session_end: an EndSession, for interpreters. kept: called with
    (home, uid, run), where a task's own files outlive it. listed_bytes: called with (home, volume),
    where it is cheap. caches: with (home), Caches on this machine.
    sdk: the package that its extra installs. A part that it lacks is empty.
    Of another project's package alone: api, the fleetctl.providers.API_VERSION that it is made for;
    row, what specs know of the type; settings, the model of its block in a Provider's spec.
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
    server: ProviderServer | None = None
    api: int = 0
    row: BuiltInProvider = BuiltInProvider(accounts=((),))
    settings: str = ""
