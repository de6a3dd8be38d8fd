"""The description of a provider's package in its `plugin.py`, and of its caches on this machine.
Imports no module of a provider: they come as names.

The lists of providers come through here, so this imports no heavy module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from fleetctl.specs.builtin import BuiltInProvider

# An entry that was used within this time may be in use by a caller that has yet to write it down.
YOUNG_S = 3600.0


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
    session: an OpenSession, and session_end: an EndSession, for interpreters; or run_sessions: its
    sessions are runs of its backend (remote/runs/run_session.py). kept: called with
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
    run_sessions: bool = False
    kept: str = ""
    listed_bytes: str = ""
    caches: str = ""
    sdk: str = ""
    server: ProviderServer | None = None
    api: int = 0
    row: BuiltInProvider = BuiltInProvider(accounts=((),))
    settings: str = ""


class CachedEntry(NamedTuple):
    """An entry of a cache. sort: a RetentionSort in controllers/kinds/retention_decision.py. key:
    for `let_go`; of a work directory the uid of its object. used_s: since the epoch. held: why it
    may not go, or empty.
    """

    sort: str
    key: str
    name: str
    bytes: int
    used_s: float
    held: str = ""


class Caches(Protocol):
    """The caches of a provider, built with the home. Optional: a row of its plugin names the class.
    Both methods block: they are called in a thread.
    """

    def listed(self, over: Collection[str], now_s: float) -> Iterable[CachedEntry]:
        """Returns all entries. over: uids of objects that are over; an entry that any other uid
        uses is held.
        """
        ...

    def let_go(self, one: CachedEntry) -> bool:
        """Removes it, unless it was used since it was listed; False then. A later user gets it
        whole or makes it again, also when this is killed half-way.
        """
        ...
