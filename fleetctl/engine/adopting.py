"""Adoption: a sandbox that carries a tag of ours, and that no record knows, becomes a run.

Called by the socket server. The sandbox is claimed first, so that all that follows finds it to be
ours; then its run is written down, in one transaction, and the next pass follows it as it does
after a restart. Where its object is not there, one is made for it that starts nothing by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controllers.adopting import NotTaken, Taking, taking
from controllers.model import ADOPTED, Resource, Run, RunState
from fleetctl.engine import applying
from fleetctl.engine.orders import Order
from fleetctl.engine.track import Track, load, track_of
from fleetctl.engine.wishes import find
from fleetctl.errors import FleetctlError, Refused, UsageError
from fleetctl.manifest import Document
from fleetctl.manifest import load as load_documents
from fleetctl.providers.strays import SHARED, Stray, Strays, work_mark
from fleetctl.stores.base import EventRow
from specs.hashing import canonical_json
from specs.kinds import KINDS, find_kind
from specs.namespaces import split_key

if TYPE_CHECKING:
    from fleetctl.engine.loop import Engine

NAME_CHARS_MAX = 63
MADE_MAX = 1000  # objects made for strays of one name, before we say that something is wrong

# What an object that is made for strays would run, if somebody made it start anything: nobody
# here knows the work of its sandboxes.
_UNKNOWN_WORK = (
    "echo 'this object was made to adopt a sandbox; apply the manifest of its work to run it again'"
    " >&2; exit 1"
)


@dataclass(frozen=True, slots=True)
class Adopted:
    """What became of one stray: why is empty for one that was adopted."""

    stray: Stray
    key: str = ""  # of its object
    index: int = -1
    made: bool = False  # the object was made for it
    why: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class _Home:
    """Where a stray goes. resource: None = an object is to be made."""

    resource: Resource | None
    taking: Taking | None


class Adopter:
    """strays_of: what a provider knows of sandboxes that nobody may remember."""

    def __init__(self, engine: Engine, strays_of: Callable[[str], Strays]) -> None:
        self._engine = engine
        self._strays_of = strays_of

    async def adopt(self, strays: Sequence[Stray], into: str = "") -> list[Adopted]:
        """Each by itself: one that cannot be adopted says why and stops no other.

        into: the key of the object that they belong to, as a person says; raises NotFound.
        """
        if into:
            self._named(into)
        done = []
        for stray in strays:
            self._engine.adopting.add(stray.run)
            try:
                done.append(await self._adopt(stray, into))
            except FleetctlError as error:
                done.append(Adopted(stray, why=str(error), hint=error.hint))
            finally:
                self._engine.adopting.discard(stray.run)
        self._engine.poke_wishes()
        return done

    async def _adopt(self, stray: Stray, into: str) -> Adopted:
        known = self._remembered(stray)
        if known is not None:
            await self._claim(stray, known.uid)
            return Adopted(stray, known.key, _index(stray) or 0)
        home = self._home(stray, into)
        uid = home.resource.uid if home.resource is not None else self._uid_for(stray)
        await self._claim(stray, uid)
        # Others may have changed the object while the provider was asked.
        home = self._home(stray, into) if home.resource is not None else home
        if home.resource is None or home.taking is None:
            return self._into_a_new_one(stray, uid)
        return self._into(home.resource, home.taking, stray)

    async def _claim(self, stray: Stray, uid: str) -> None:
        strays = self._strays_of(stray.provider)
        try:
            await strays.claim(stray, self._engine.store.store_id, uid)
        finally:
            await strays.close()

    # -- where it belongs --------------------------------------------------------------------------

    def _remembered(self, stray: Stray) -> Resource | None:
        """The object of its run, where an earlier adoption was cut off before the answer."""
        track = self._engine.tracks.get(self._engine.owner_of.get(stray.run, ""))
        return None if track is None else track.resource

    def _home(self, stray: Stray, into: str) -> _Home:
        """Raises Refused with the reason where it can be adopted nowhere."""
        if stray.work == SHARED:
            raise Refused(
                "tasks take turns in it, and its tag tells of the first of them alone",
                hint=_or_else(stray),
            )
        if stray.provider not in self._engine.providers:
            raise Refused(
                f"there is no provider `{stray.provider}` here",
                hint="apply a `kind: Provider` of that name",
            )
        resource = self._named(into) if into else self._own(stray)
        if resource is None:
            return _Home(None, None)
        track = track_of(resource)
        load(track, self._engine.store.runs)
        found = _taken(track, stray)
        if isinstance(found, NotTaken):
            if not into and not _same_work(track, stray):
                return _Home(None, None)
            raise Refused(f"{resource.key}: {found.why}", hint=_or_else(stray))
        if not into and work_mark(found.unit.template_hash, found.unit.params_hash) != stray.work:
            return _Home(None, None)
        return _Home(resource, found)

    def _named(self, key: str) -> Resource:
        word, name, namespace = split_key(key)
        kind = find_kind(word)
        if kind is None or not name or not kind.runs:
            raise UsageError(f"`{key}` names no object that runs work")
        return find(self._engine.store, kind.name, name, namespace)

    def _own(self, stray: Stray) -> Resource | None:
        """The object that it was made for, or the one that has its name now."""
        listed = self._engine.store.resources.list()
        same = next((it for it in listed if it.uid == stray.uid), None)
        if same is not None and same.deleted_at_s is not None:
            raise Refused(
                f"{same.key} is being deleted, and it goes with it",
                hint="`--into` makes it a run of another object",
            )
        if same is not None:
            return same
        word, name, namespace = split_key(stray.job)
        kind = find_kind(word) if name else None
        if kind is None or not kind.runs:
            return None
        return self._engine.store.resources.get(kind.name, name, namespace)

    # -- records -----------------------------------------------------------------------------------

    def _into(self, resource: Resource, taken: Taking, stray: Stray) -> Adopted:
        """Written down as a start whose answer was lost: the provider is asked by its id, and what
        never began there begins now. Above the object's parallelism nothing may begin, so there it
        is one that did.
        """
        track = track_of(resource)
        load(track, self._engine.store.runs)
        assert track.controller is not None
        template = track.controller.template(taken.unit.index)
        price = self._engine.market.price(stray.provider, template, resource.namespace)
        unit = taken.unit
        run = replace(
            self._run(stray, resource.uid, unit.index, taken.attempt),
            template_hash=unit.template_hash,
            params=canonical_json(dict(unit.params)),
            params_hash=unit.params_hash,
            usd_per_s=price,
        )
        assert track.history is not None
        limit = track.controller.policy.parallelism
        crowded = limit is not None and len(track.history.live) >= limit
        self._record(resource, [run, *([_running(run)] if crowded else [])], stray)
        return Adopted(stray, resource.key, unit.index)

    def _into_a_new_one(self, stray: Stray, uid: str) -> Adopted:
        """What it runs is not known, so its run is one that began: nothing is handed to it."""
        store, now_s = self._engine.store, self._engine.clock.now_s()
        text = json.dumps(self._document(stray))
        document = Document(path="adopted", text=text, dir="/")
        (change,) = applying.propose(store, load_documents([document]), Order(), now_s)
        made = replace(change.after, uid=uid)
        applying.commit(store, [replace(change, after=made)], now_s)
        resource = store.resources.get(made.kind, made.name, made.namespace)
        assert resource is not None
        track = track_of(resource)
        load(track, store.runs)
        assert track.controller is not None
        unit, template = track.controller.unit(0), track.controller.template(0)
        assert unit is not None
        # The price of a machine that nobody described is not known, unless all there are free.
        price = self._engine.market.price(stray.provider, template, resource.namespace)
        run = replace(
            self._run(stray, uid, 0, 1),
            template_hash=unit.template_hash,
            params=canonical_json(dict(unit.params)),
            params_hash=unit.params_hash,
            usd_per_s=0.0 if price == 0.0 else None,
        )
        self._record(resource, [run, _running(run)], stray)
        return Adopted(stray, resource.key, 0, made=True)

    def _record(self, resource: Resource, states: Sequence[Run], stray: Stray) -> None:
        """The run as it is intended, then as it goes on; its object is looked at anew."""
        store, now_s = self._engine.store, self._engine.clock.now_s()
        first, *later = states
        what = f"{KINDS[resource.kind].unit} {first.index} attempt {first.attempt}"
        said = f"sandbox {stray.handle} at {stray.provider} adopted as {what}"
        with store.transaction():
            store.runs.begin([first])
            for run in later:
                store.runs.advance(run)
            again = replace(resource, generation=resource.generation + 1)
            store.resources.put(again, expected_version=resource.version)
            store.events.record([EventRow(resource.uid, now_s, "Normal", "Adopted", said)])

    def _run(self, stray: Stray, uid: str, index: int, attempt: int) -> Run:
        return Run(
            name=stray.run,
            uid=uid,
            index=index,
            attempt=attempt,
            state=RunState.STARTING,
            provider=stray.provider,
            sandbox=stray.run,
            template_hash="",
            params="{}",
            params_hash="",
            created_at_s=stray.created_at_s or self._engine.clock.now_s(),
            handle=stray.handle,
            placed=ADOPTED,
        )

    def _document(self, stray: Stray) -> dict[str, object]:
        _, name, namespace = split_key(stray.job)
        task: dict[str, object] = {"run": stray.run}
        if stray.job:
            task["of"] = stray.job
        if _index(stray) is not None:
            task["index"] = _index(stray)
        return {
            "apiVersion": "fleetctl.dev/v1alpha1",
            "kind": "BatchJob",
            "metadata": {
                "name": self._free_name(f"adopted-{name or stray.run}", namespace),
                "namespace": namespace,
            },
            "spec": {
                "tasks": {"items": [task]},
                "parallelism": 0,  # it starts nothing: its one sandbox is all there is of it
                "maxInfraRetries": 0,
                "cache": {"policy": "Never"},
                "placement": {"provider": stray.provider},
                "template": {"script": _UNKNOWN_WORK},
            },
        }

    def _free_name(self, wanted: str, namespace: str) -> str:
        for number in range(1, MADE_MAX + 1):
            end = f"-{number}" if number > 1 else ""
            name = wanted[: NAME_CHARS_MAX - len(end)].rstrip("-") + end
            if self._engine.store.resources.get("BatchJob", name, namespace) is None:
                return name
        raise Refused(f"there are {MADE_MAX:,} objects named `{wanted}`", hint="delete some")

    def _uid_for(self, stray: Stray) -> str:
        """That of its old object while nothing here has it: its files lie under it."""
        import secrets

        taken = {resource.uid for resource in self._engine.store.resources.list()}
        return stray.uid if stray.uid and stray.uid not in taken else secrets.token_hex(8)


def _taken(track: Track, stray: Stray) -> Taking | NotTaken:
    assert track.controller is not None and track.history is not None
    what = KINDS[track.resource.kind].unit
    return taking(track.controller, track.history, _index(stray), what=what)


def _same_work(track: Track, stray: Stray) -> bool:
    """The object still wishes for just what runs there."""
    index = _index(stray)
    assert track.controller is not None
    unit = None if index is None else track.controller.unit(index)
    return unit is not None and work_mark(unit.template_hash, unit.params_hash) == stray.work


def _or_else(stray: Stray) -> str:
    named = stray.run if stray.provider == "local" else stray.handle
    return f"`fleetctl orphans {named} --delete` ends it"


def _index(stray: Stray) -> int | None:
    return int(stray.index) if stray.index.isdigit() else None


def _running(run: Run) -> Run:
    return replace(run, state=RunState.RUNNING, started_at_s=run.created_at_s)
