"""The snapshots that we make at Daytona: whose each is, by its name, and when it may go.

A snapshot is shared by a whole organization, and carries no label: its name says the store, the
account and the target that it was made for, so that nobody takes another's for his own. Called by
images.py, which makes them, and by daytona/orphans.py, which lists them.
"""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from fleetctl.providers.daytona.connection.errors import asking, is_not_found
from fleetctl.providers.remote.sandboxes import names
from fleetctl.providers.rundir.builds import LINKS

if TYPE_CHECKING:
    import daytona

PREFIX = "fleetctl-"  # of the names of all snapshots that we make
ASK_S = 30.0
PAGE = 100
LOOK_S = 0.2
# Of one that no object of its store needs: who works on a program takes it up again within days.
KEPT_UNUSED_S = 7 * 86_400.0
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9.-]+")
log = logging.getLogger("fleetctl.providers")


class Snapshot(Protocol):
    """What of the SDK's own, which it does not export, is used here."""

    name: str
    created_at: object
    last_used_at: object


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose snapshots. target: of the account; "" is the organization's own default."""

    store: str
    account: str
    target: str = ""

    @property
    def prefix(self) -> str:
        """What the names of all of them begin with, and no other name."""
        parts = (names.tag_of(self.store), _plain(self.account), _plain(self.target or "default"))
        return f"{PREFIX}{'_'.join(parts)}_"

    def name(self, key: str) -> str:
        return self.prefix + key


def store_of(name: str) -> str:
    """The tag of the store that a snapshot was made for; "" when it is none of ours."""
    parts = name.removeprefix(PREFIX).rsplit("_", 3)
    return parts[0] if name.startswith(PREFIX) and len(parts) == 4 else ""


def key_of(name: str) -> str:
    """Which image and size it is, as its build's log is called."""
    return name.rpartition("_")[2]


def users(jobs: Path, key: str) -> tuple[str, ...]:
    """uids of the objects of this home whose templates need it."""
    return tuple(sorted(link.parent.parent.name for link in jobs.glob(f"*/{LINKS}/{key}.log")))


async def listed(client: daytona.AsyncDaytona) -> list[Snapshot]:
    """All snapshots that carry a name of ours. Raises Refused and Unavailable."""
    found: list[Snapshot] = []
    page, pages = 1, 1
    while page <= pages:
        async with asking("snapshots cannot be listed", deadline_s=ASK_S):
            answer = await client.snapshot.list(page=page, limit=PAGE)
        items = cast("list[Snapshot]", answer.items)
        found += [one for one in items if store_of(one.name)]
        page, pages = page + 1, int(answer.total_pages or 1)
    return found


async def collect(
    client: daytona.AsyncDaytona, scope: Scope, jobs: Path, *, now_s: float
) -> list[str]:
    """Delete those of this scope that no object needs and nothing has used for long; their
    names.
    """
    unused = await _unused(client, scope, jobs)
    old = [one for one in unused if now_s - _used_s(one) > KEPT_UNUSED_S]
    for one in old:
        await remove(client, one.name)
    return [one.name for one in old]


async def make_room(client: daytona.AsyncDaytona, scope: Scope, jobs: Path) -> str:
    """Delete one of this scope: that no object needs if there is one, and that was used the longest
    ago; what still needs it builds it anew. Its name, or "" when there is none: what others made is
    theirs.
    """
    ours = [one for one in await listed(client) if one.name.startswith(scope.prefix)]
    ours.sort(key=lambda one: (bool(users(jobs, key_of(one.name))), _used_s(one)))
    for one in ours[:1]:
        await remove(client, one.name)
        return str(one.name)
    return ""


async def remove(client: daytona.AsyncDaytona, name: str) -> None:
    """Returns once it is gone; no error when it was."""
    try:
        async with asking(f"snapshot `{name}` cannot be deleted", deadline_s=ASK_S):
            await client.snapshot.delete(await client.snapshot.get(name))
            while True:
                await asyncio.sleep(LOOK_S)
                await client.snapshot.get(name)
    except Exception as error:
        if not is_not_found(error):
            raise
    log.info("snapshot deleted", extra={"snapshot": name})


async def _unused(client: daytona.AsyncDaytona, scope: Scope, jobs: Path) -> list[Snapshot]:
    ours = [one for one in await listed(client) if one.name.startswith(scope.prefix)]
    return [one for one in ours if not users(jobs, key_of(one.name))]


def _used_s(one: Snapshot) -> float:
    """When the snapshot was last used, or made."""
    used_at = one.last_used_at or one.created_at
    at = used_at if isinstance(used_at, datetime) else datetime.fromisoformat(str(used_at))
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _plain(text: str) -> str:
    return _NOT_PLAIN.sub("-", text)
