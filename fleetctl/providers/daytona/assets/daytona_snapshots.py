"""Names the snapshots that we make at Daytona, so that each name shows the owner, and decides when
a snapshot may go.

A snapshot is shared by a whole organization, and carries no label: its name has the store, the
account and the target that it was made for, so that no store takes another's for its own. Called by
daytona_images.py, which makes them, and by daytona/daytona_orphans.py, which lists them.
"""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, cast

from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_errors import is_not_found, retryable_call
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.service_calls import ToleratedAnswer
from fleetctl.providers.rundir.build_logs import LINKS

PREFIX = "fleetctl-"  # of the names of all snapshots that we make
ASK_S = 30.0
PAGE = 100
LOOK_S = 0.2
# For a snapshot that no object of its store needs: users take a program up again within days.
KEPT_UNUSED_S = 7 * 86_400.0
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9.-]+")
log = logging.getLogger("fleetctl.providers")


class Snapshot(Protocol):
    """The part of the SDK's own class, which it does not export, that is used here."""

    name: str
    created_at: object
    last_used_at: object


@dataclass(frozen=True, slots=True)
class SnapshotScope:
    """The owner of snapshots. target: of the account; "" is the organization's own default."""

    store: str
    account: str
    target: str = ""

    @property
    def prefix(self) -> str:
        """The prefix of the names of all its snapshots, and of no other name."""
        parts = (
            sandbox_names.tag_of(self.store),
            _make_plain(self.account),
            _make_plain(self.target or "default"),
        )
        return f"{PREFIX}{'_'.join(parts)}_"

    def name(self, key: str) -> str:
        return self.prefix + key


def store_of(name: str) -> str:
    """Returns the tag of the store that a snapshot was made for; "" when it is not ours."""
    parts = name.removeprefix(PREFIX).rsplit("_", 3)
    if name.startswith(PREFIX) and len(parts) == 4:
        return parts[0]
    return ""


def key_of(name: str) -> str:
    """Returns the key of its image and size, which also names its build's log."""
    return name.rpartition("_")[2]


def list_users(jobs: Path, key: str) -> tuple[str, ...]:
    """Returns the uids of objects in this state directory whose templates need the snapshot."""
    return tuple(sorted(link.parent.parent.name for link in jobs.glob(f"*/{LINKS}/{key}.log")))


async def list_snapshots(client: sdk.AsyncDaytona) -> list[Snapshot]:
    """Returns all snapshots that carry a name of ours. Raises Refused and Unavailable."""
    found: list[Snapshot] = []
    page = 1
    pages = 1
    while page <= pages:
        async with retryable_call("snapshots cannot be listed", deadline_s=ASK_S):
            answer = await client.snapshot.list(page=page, limit=PAGE)
        items = cast("list[Snapshot]", answer.items)
        found += [one for one in items if store_of(one.name)]
        page = page + 1
        pages = int(answer.total_pages or 1)
    return found


async def collect_unused(
    client: sdk.AsyncDaytona,
    scope: SnapshotScope,
    jobs: Path,
    *,
    now_s: float,
) -> list[str]:
    """Deletes the snapshots of this scope that no object needs and that were not used for long;
    returns their names.
    """
    unused = await _list_unused(client, scope, jobs)
    old = [one for one in unused if now_s - _used_s(one) > KEPT_UNUSED_S]
    for one in old:
        await remove_snapshot(client, one.name)
    return [one.name for one in old]


async def evict_oldest(
    client: sdk.AsyncDaytona,
    scope: SnapshotScope,
    jobs: Path,
) -> str:
    """Deletes the least recently used snapshot of this scope, first among those that no object
    needs; an object that still needs it builds it again. Returns its name, or "" when there is
    none: other scopes' snapshots are theirs.
    """
    ours = [one for one in await list_snapshots(client) if one.name.startswith(scope.prefix)]
    ours.sort(key=lambda one: (bool(list_users(jobs, key_of(one.name))), _used_s(one)))
    for one in ours[:1]:
        await remove_snapshot(client, one.name)
        return str(one.name)
    return ""


async def remove_snapshot(client: sdk.AsyncDaytona, name: str) -> None:
    """Returns once it is gone; no error when it was."""
    with ToleratedAnswer(is_not_found):
        async with retryable_call(f"snapshot `{name}` cannot be deleted", deadline_s=ASK_S):
            await client.snapshot.delete(await client.snapshot.get(name))
            while True:
                await asyncio.sleep(LOOK_S)
                await client.snapshot.get(name)
    log.info("snapshot deleted", extra={"snapshot": name})


async def _list_unused(
    client: sdk.AsyncDaytona,
    scope: SnapshotScope,
    jobs: Path,
) -> list[Snapshot]:
    ours = [one for one in await list_snapshots(client) if one.name.startswith(scope.prefix)]
    return [one for one in ours if not list_users(jobs, key_of(one.name))]


def _used_s(one: Snapshot) -> float:
    """Returns when the snapshot was last used, or made."""
    used_at = one.last_used_at or one.created_at
    at = used_at if isinstance(used_at, datetime) else datetime.fromisoformat(str(used_at))
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _make_plain(text: str) -> str:
    return _NOT_PLAIN.sub("-", text)
