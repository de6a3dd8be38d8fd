"""All that is kept of what is over, by sort, with its size, its last use, and why it may not go;
and what of it goes by the limits. Called in a thread by the controller, and by
`fleetctl gc --dry-run`. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetctl.controllers.kinds.retention.decide import Decision, Item, decide
from fleetctl.controllers.kinds.retention.limits import Limits, Sort
from fleetctl.providers.contract.caches import YOUNG_S, Cached
from fleetctl.providers.paths import jobs_dir, providers_in
from fleetctl.providers.remote.runs.scratch import INTERPRETERS, KEPT
from fleetctl.providers.rundir.sizes import room_of
from fleetctl.providers.sources.snapshots import Snapshots, name_of
from fleetctl.retention.logs import logs_in
from fleetctl.retention.standing import Standing, standings
from fleetctl.specs.values.namespaces import object_key
from fleetctl.stores.read.reader import Reader
from fleetctl.tracking.annotations import ORIGIN, REVISION
from fleetctl.tracking.kept_by import made_again_by
from fleetctl.tracking.looked import copy_in
from fleetctl.wiring.plugins import caches_of

NOT_OVER, UNKNOWN = "not over", "of no object of this store"


@dataclass(frozen=True, slots=True)
class Found:
    """Of one sort: its limits, and what they come to."""

    sort: Sort
    limits: Limits
    decision: Decision


def survey(home: Path, limits: Mapping[Sort, Limits], now_s: float) -> dict[Sort, Found]:
    """Raises StoreError where the store cannot be read; then nothing is known, and nothing goes."""
    with Reader(home) as reader:
        items = _items(home, reader, now_s)
    return {
        sort: Found(sort, limits[sort], decide(items[sort], limits[sort], now_s)) for sort in Sort
    }


def _items(home: Path, reader: Reader, now_s: float) -> dict[Sort, list[Item]]:
    # The files first: what begins while they are listed is not among them.
    logs, copies = list(logs_in(home)), list(Snapshots(home).kept())
    objects = standings(reader)
    over = {uid for uid, it in objects.items() if it.over}
    cached = [it for one in caches_of(home).values() for it in one.listed(over, now_s)]
    ended: dict[str, set[str]] = {}
    found: dict[Sort, list[Item]] = {sort: [] for sort in Sort}
    found[Sort.OBJECTS] = [_object(it) for it in objects.values() if it.runs]
    for log in logs:
        if log.uid not in ended:
            ended[log.uid] = reader.ended_runs(log.uid)
        standing = objects.get(log.uid)
        held = "" if log.run in ended[log.uid] else NOT_OVER if standing else UNKNOWN
        name = f"{standing.key if standing else log.uid} {log.run}"
        found[Sort.LOGS].append(Item(log.key, name, log.bytes, log.written_s, held))
    found[Sort.WORK_DIRECTORIES] = list(_work(home, objects, cached))
    for one in cached:
        if one.sort != Sort.WORK_DIRECTORIES:
            item = Item(one.key, one.name, one.bytes, one.used_s, one.held)
            found[Sort(one.sort)].append(item)
    found[Sort.SOURCES] = list(_sources(copies, objects, now_s))
    found[Sort.RUNS] = list(_series(reader, objects))
    found[Sort.EVENTS] = [
        Item(uid, objects[uid].key, size, at_s, "" if objects[uid].over else NOT_OVER)
        for uid, size, at_s in reader.events_bytes()
        if uid in objects
    ]
    found[Sort.REUSE] = [
        Item(uid, objects[uid].key, size, at_s)
        for uid, size, at_s in reader.reuse_bytes()
        if uid in objects
    ]
    for uid, kind, name, namespace, size, gone_s in reader.gone_records():
        found[Sort.DELETED].append(Item(uid, object_key(kind, name, namespace), size, gone_s))
    return found


def _object(it: Standing) -> Item:
    held = _records_held(it)
    if keeper := made_again_by(it.annotations):
        held = held or f"kept by {keeper}"
    return Item(it.uid, it.key, it.bytes, it.since_s, held)


def _records_held(it: Standing) -> str:
    if not it.over:
        return NOT_OVER
    return f"needed by {it.needed_by[0]}" if it.needed_by else ""


def _series(reader: Reader, objects: Mapping[str, Standing]) -> Iterator[Item]:
    for uid, size in reader.series_bytes().items():
        if uid in objects:
            it = objects[uid]
            yield Item(uid, it.key, size, it.since_s, _records_held(it))


def _work(home: Path, objects: Mapping[str, Standing], cached: list[Cached]) -> Iterator[Item]:
    """One for each object: all that its runs left at any provider's place here, but logs."""
    sizes = {it.key: 0 for it in cached if it.sort == Sort.WORK_DIRECTORIES}
    for it in cached:
        if it.sort == Sort.WORK_DIRECTORIES:
            sizes[it.key] += it.bytes
    for provider in providers_in(home):
        jobs = jobs_dir(home, provider)
        for job in sorted(jobs.iterdir()) if jobs.is_dir() else ():
            if job.name == INTERPRETERS or not job.is_dir():
                continue
            size = sum(room_of(one) for one in job.iterdir() if one.name not in KEPT)
            sizes[job.name] = sizes.get(job.name, 0) + size
    for uid, size in sizes.items():
        standing = objects.get(uid)
        if not size:
            continue
        if standing is None:
            yield Item(uid, uid, size, 0.0, UNKNOWN)
        else:
            held = "" if standing.over else NOT_OVER
            yield Item(uid, standing.key, size, standing.since_s, held)


def _sources(
    copies: list[tuple[str, Path]], objects: Mapping[str, Standing], now_s: float
) -> Iterator[Item]:
    """Those that no object names go by themselves, and are not told of."""
    keys, users = Snapshots(Path()), dict[str, list[Standing]]()
    for it in objects.values():
        if REVISION in it.annotations and ORIGIN in it.annotations:
            name = name_of(Path(it.annotations[ORIGIN]))
            users.setdefault(keys.key_of(copy_in(it.annotations), name), []).append(it)
    for key, path in copies:
        if key not in users:
            continue
        needed = [it.key for it in users[key] if not it.over]
        held = f"needed by {needed[0]}" if needed else ""
        used_s = max([path.stat().st_mtime, *(it.since_s for it in users[key])])
        held = held or (NOT_OVER if used_s > now_s - YOUNG_S else "")
        yield Item(key, users[key][0].key, room_of(path), used_s, held)
