"""The endpoints of an engine: their gateway is up while there is one, knows them and who may call,
and what it counted is taken in. Starts wait here for an endpoint that nobody can ask yet.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.common.errors import StoreError, Unavailable
from fleetctl.common.tasks import woken
from fleetctl.engine.execute.secrets import Found
from fleetctl.engine.hurry import hurry
from fleetctl.engine.kinds.endpoints import batches
from fleetctl.engine.kinds.endpoints.charging import Charging
from fleetctl.engine.kinds.endpoints.functions import Behind, Lack, ServedFunctions
from fleetctl.engine.kinds.endpoints.grants import Grants, grant_of
from fleetctl.engine.kinds.endpoints.standing import lacking, standing
from fleetctl.gateway.reach.gateway import Gateway, Served
from fleetctl.providers.contract.base import Relaying, RunRequest, ref_of
from fleetctl.providers.contract.endpoints import EndpointAccess
from fleetctl.specs.kinds.endpoint import EndpointSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.values.hints import with_hint
from fleetctl.specs.values.namespaces import object_key

if TYPE_CHECKING:
    from fleetctl.controllers.model import Resource
    from fleetctl.controllers.vocabulary.status_keys import Status
    from fleetctl.engine.shared.state import State
    from fleetctl.tracking.track import Track, Work

log = logging.getLogger("fleetctl.engine")

KIND = "Endpoint"
MISSING, NOT_READY = "EndpointMissing", "EndpointNotReady"
TURN_GAP_S = 0.2  # between two turns at least, whoever wakes them
REFRESH_S = 2.0  # between two looks at how busy they are
PROBE_S = 15.0  # between two questions to servers that answer
EAGER_S = 2.0  # and to such that do not
HEAR_GAP_S = 0.5  # between two transactions with what was asked
LISTEN_S = 10.0
COUNT_WAIT_S = (
    60.0  # what is over is not told so before its calls are counted, or so long has passed
)
COUNTING = "what its calls cost is being counted"
COUNTS_LATER = "the gateway did not answer: what its last calls cost is counted once it does"
_UP = ("Ready", "Starting")  # a Function that may have containers
Secrets = Callable[[tuple[str, ...], str], Found]
Health = Mapping[str, Any]


class Link(NamedTuple):
    """The gateway, the grants that it has, and the charges that come of it."""

    gateway: Gateway
    grants: Grants
    charging: Charging


class Endpoints:
    """link: None = this engine has no gateway, and its endpoints are never ready."""

    def __init__(
        self,
        state: State,
        *,
        secrets: Secrets,
        functions: ServedFunctions,
        link: Link | None = None,
    ) -> None:
        self._state, self._secrets, self._link = state, secrets, link
        self._functions = functions
        self._health: dict[tuple[str, str], Health] = {}  # by namespace and name
        self._trouble: Unavailable | None = None  # with the gateway itself
        self._keyless: dict[tuple[str, str], Unavailable] = {}
        self._served: list[Served] | None = None  # the set that the gateway has
        self._lacks: dict[str, Lack] = {}  # by uid of those whose Functions cannot be asked
        self._woken = asyncio.Event()
        self._serving = asyncio.Event()  # set while the gateway has a set
        self._looked_at: dict[str, int] = {}  # uid -> the generation that a pass saw last
        self._seq = 0
        self._caught_up = False  # with all that was asked before this controller
        self._uncounted: dict[str, float] = {}  # uid -> since when nothing of it runs

    # -- starts ------------------------------------------------------------------------------------

    async def join(self, work: Work, request: RunRequest) -> RunRequest:
        """The same with what its program finds its endpoints by. Raises Unavailable: it waits."""
        names, namespace = request.template.asks, work.resource.namespace
        if not names:
            return request
        specs = {name: self._spec(name, namespace) for name in names}
        first = specs[names[0]]
        if any(spec.reach != first.reach for spec in specs.values()):
            raise Unavailable(
                "its endpoints have not the same `reach`, and a task has one way to ask",
                reason=NOT_READY,
                hint="give all of them `Gateway`, or all `Direct`",
            )
        if first.reach == "Direct":
            if request.template.prompt is not None:
                raise Unavailable(
                    f"{object_key(KIND, names[0], namespace)} has `reach: Direct`, and prompts are"
                    " asked through the gateway",
                    reason=NOT_READY,
                    hint="give it `reach: Gateway`",
                )
            return replace(request, secrets={**request.secrets, **self._direct(first, namespace)})
        for name, spec in specs.items():
            self._must_be_ready(name, namespace, spec)
        assert self._link is not None, "they are ready"
        if not await self._link.grants.admit(grant_of(work, request.run, names)):
            raise Unavailable(
                "what its endpoints were asked takes all that its budget has left",
                reason="BudgetExhausted",
                hint="raise the budget's `maxCost`",
            )
        url, token = self._link.gateway.access(request.run)
        share = min(float(spec.max_fallback_share) for spec in specs.values())
        return replace(request, endpoints=EndpointAccess(names, first.models, url, token, share))

    def _spec(self, name: str, namespace: str) -> EndpointSpec:
        for track in self._declared():  # read by its last pass: starts are many
            row = track.resource
            known = (row.name, row.namespace) == (name, namespace) and row.deleted_at_s is None
            if known and isinstance(track.spec, EndpointSpec):
                return track.spec
        resource = self._state.store.resources.get(KIND, name, namespace)
        if resource is None:
            # A deleted one serves its users to their end.
            tracks = (it.resource for it in self._declared())
            key = object_key(KIND, name, namespace)
            resource = next((it for it in tracks if it.key == key), None)
        if resource is None:
            raise Unavailable(
                f"{object_key(KIND, name, namespace)} is not declared",
                reason=MISSING,
                hint=f"apply a manifest of kind Endpoint with the name `{name}`",
            )
        spec = parse_spec(KIND, resource.spec)
        assert isinstance(spec, EndpointSpec)
        return spec

    def _must_be_ready(self, name: str, namespace: str, spec: EndpointSpec) -> None:
        found = self._lacking(name, namespace, spec)
        if found is not None:
            self._woken.set()
            reason, message, hint = found
            key = object_key(KIND, name, namespace)
            text = f"{key}: {message}" if reason == NOT_READY else f"{key}: {reason}: {message}"
            raise Unavailable(text, reason=NOT_READY, hint=hint, retry_after_s=EAGER_S / 2)

    def _lacking(
        self, name: str, namespace: str, spec: EndpointSpec
    ) -> tuple[str, str, str] | None:
        trouble = self._keyless.get((namespace, name)) or self._trouble
        if spec.reach != "Direct":
            if self._link is None:
                return NOT_READY, "this controller has no gateway", ""
            if trouble is not None:
                return trouble.reason, str(trouble), trouble.hint or ""
            if lack := self._without(spec, namespace):
                return lack.reason, lack.message, lack.hint
        return lacking(spec, self._health.get((namespace, name)))

    def _without(self, spec: EndpointSpec, namespace: str) -> Lack | None:
        """The first reason, where all its servers are Functions that cannot be asked."""
        if len(spec.functions) < len(spec.servers):
            return None
        found = [self._functions.behind(it, namespace) for it in spec.servers]
        lacks = [it for it in found if isinstance(it, Lack)]
        return lacks[0] if len(lacks) == len(found) else None

    def _lacking_functions(self) -> dict[str, Lack]:
        found: dict[str, Lack] = {}
        for track in self._declared():
            spec = track.spec
            if isinstance(spec, EndpointSpec) and spec.reach != "Direct":
                lack = self._without(spec, track.resource.namespace)
                if lack is not None:
                    found[track.resource.uid] = lack
        return found

    def _direct(self, spec: EndpointSpec, namespace: str) -> Mapping[str, str]:
        """The first server's address and the key itself, as secrets."""
        key, url = self._key(spec, namespace), spec.servers[0].base
        usual = next(iter(spec.models.values()), None)
        return {
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": key or "none",
            "OLLAMA_HOST": url,
            **({"FLEETCTL_LLM_MODEL": usual} if usual else {}),
        }

    def _key(self, spec: EndpointSpec, namespace: str) -> str:
        """Raises Unavailable where the key is not there."""
        if spec.api_key is None:
            return ""
        secret, name = spec.api_key.secret, spec.api_key.name
        key = self._secrets((secret,), namespace).values.get(name)
        if not key:
            message = f"{object_key('Secret', secret, namespace)} gives no {name}"
            hint = f"`fromEnv: [{name}]` in it takes the key from the controller's environment"
            raise Unavailable(message, reason="SecretMissing", hint=hint)
        return key

    # -- status ------------------------------------------------------------------------------------

    def lacking(self, track: Track) -> tuple[str, str] | None:
        """Reason and sentence of one that nobody can ask now."""
        assert isinstance(track.spec, EndpointSpec)
        row = track.resource
        found = self._lacking(row.name, row.namespace, track.spec)
        return (found[0], with_hint(found[1], found[2])) if found is not None else None

    def status(self, track: Track) -> Status:
        assert isinstance(track.spec, EndpointSpec)
        row = track.resource
        if self._looked_at.get(row.uid) != row.generation:
            self._looked_at[row.uid] = row.generation
            self._woken.set()  # it is new, or another
        health = self._health.get((row.namespace, row.name))
        return standing(track.spec, health, self._state.store.calls.sum_of(row.uid))

    def counting(self, work: Work) -> tuple[str, str]:
        """Why the calls of an object of which nothing runs are not counted yet, and why they are
        counted later, once that was waited for; or empty.
        """
        uid, history = work.resource.uid, work.history
        if history.live or history.sandboxes or self._link is None or not self._may_owe(work):
            self._uncounted.pop(uid, None)
            return "", ""
        now_s = self._state.clock.now_s()
        if uid not in self._uncounted:
            self._uncounted[uid] = now_s
            self._link.grants.change()  # what is heard after the gateway takes it is all
            self._woken.set()
        until_s = self._uncounted[uid] + COUNT_WAIT_S
        if now_s >= until_s:
            return "", COUNTS_LATER
        self._state.queue.add(uid, until_s)
        return COUNTING, ""

    def batched(self, uid: str) -> str:
        """In which batches the rows of an object are, as a sentence; or empty."""
        return batches.of_object(self._health.values(), uid)

    # -- the gateway -------------------------------------------------------------------------------

    async def tend(self) -> None:
        """For ever: keep the gateway up and told, and look how the endpoints stand."""
        while True:
            if self._served is None and not self._declared():
                await self._woken.wait()  # a controller without endpoints does not wake for them
            else:
                await woken(self._woken, REFRESH_S)
            self._woken.clear()
            await self.turn()
            await asyncio.sleep(TURN_GAP_S)

    async def turn(self) -> None:
        if self._link is None or not self._declared():
            self._keep_served(None)
            return
        try:
            await self._turn(self._link)
            trouble = None
        except Unavailable as error:
            trouble = error
        if str(trouble) != str(self._trouble):
            self._trouble = trouble
            self._poke_all()
            if trouble is None:
                hurry(self._state, NOT_READY)

    async def listen(self) -> None:
        """For ever: take in what was asked."""
        while True:
            await self._serving.wait()
            await self.hear(wait_s=LISTEN_S)
            await asyncio.sleep(HEAR_GAP_S)

    async def hear(self, *, wait_s: float) -> None:
        if self._link is None or self._served is None:
            return
        try:
            await self._hear(self._link, wait_s)
        except Unavailable:
            self._woken.set()

    async def _hear(self, link: Link, wait_s: float) -> None:
        """Raises Unavailable."""
        version = link.grants.version
        try:
            self._seq, rows = await link.gateway.usage(self._seq, wait_s=wait_s)
            if rows:
                link.charging.hear(rows)
            link.grants.all_heard(version)
            self._caught_up = True
        except StoreError as error:
            self._seq = 0  # heard once more, which adds nothing twice
            log.error("calls not stored", extra={"error": str(error)})

    async def close(self) -> None:
        if self._link is not None:
            await self._link.gateway.close(leave=self._state.live_runs() > 0)

    def _keep_served(self, served: list[Served] | None) -> None:
        """Stores the set that the gateway has, None for none; `listen` waits for one."""
        self._served = served
        if served is None:
            self._serving.clear()
        else:
            self._serving.set()

    async def _turn(self, link: Link) -> None:
        gateway, grants = link.gateway, link.grants
        anew = await gateway.up()
        if anew:
            self._keep_served(None)
            grants.change()
        keyless = set(self._keyless)
        wanted = self._wanted()
        if set(self._keyless) != keyless:
            self._poke_all()
        lacks, self._lacks = self._lacks, self._lacking_functions()
        if lacks != self._lacks:
            self._poke_all()
            hurry(self._state, NOT_READY)
        if wanted != self._served:
            await gateway.serve(wanted)
            self._keep_served(wanted)
            grants.change()
        if self._seq == 0:
            await self._hear(link, 0.0)  # what an earlier controller let ask
        grants.recount()
        await grants.send()
        if self._uncounted:
            await self._count(link)
        if anew:
            self._relay(link)
        sick = any(not it.get("ready") for it in self._health.values())
        rows = await gateway.health(max_age_s=EAGER_S if sick else PROBE_S)
        self._take({(row["namespace"], row["name"]): row for row in rows})
        servers = [it for row in rows for it in row.get("servers") or () if it.get("function")]
        self._functions.told({it["url"]: it["why"] for it in servers if it["why"]})
        await self._functions.count(it["url"] for it in servers if it["state"] in _UP)

    def _may_owe(self, work: Work) -> bool:
        """Before the first word of the gateway, whoever asks may, for an earlier controller."""
        assert self._link is not None
        if self._link.grants.may_owe(work.resource.uid):
            return True
        return not self._caught_up and bool(self._declared() and work.controller.template(0).asks)

    async def _count(self, link: Link) -> None:
        """Hear what objects asked of which nothing runs, and let those end that owe nothing."""
        await self._hear(link, 0.0)
        for uid in [it for it in self._uncounted if not link.grants.may_owe(it)]:
            del self._uncounted[uid]
            self._state.poke(uid)

    def _relay(self, link: Link) -> None:
        """Carry the calls of runs that an earlier controller began, and of all runs where the
        gateway has come to listen elsewhere.
        """
        for track in self._state.tracks.values():
            for run in track.work.history.live.values() if track.work is not None else ():
                backend = self._state.providers.get(run.provider)
                if run.handle and link.grants.has(run.name) and isinstance(backend, Relaying):
                    url, token = link.gateway.access(run.name)
                    backend.relay(ref_of(run), EndpointAccess((), {}, url, token))

    def _take(self, found: dict[tuple[str, str], Health]) -> None:
        before, self._health = self._health, found
        for track in self._declared():
            name = track.resource.namespace, track.resource.name
            if _shown(before.get(name)) != _shown(found.get(name)):
                self._state.poke(track.resource.uid)
        for uid in batches.changed(before.values(), found.values()) & self._state.tracks.keys():
            self._state.poke(uid)
        ready = {name for name, health in found.items() if health.get("ready")}
        if any(not before.get(name, {}).get("ready") for name in ready):
            # Hundreds of prompts may wait, each a minute by now.
            hurry(self._state, NOT_READY)

    def _declared(self) -> list[Track]:
        assets = self._state.tracks.assets.values()
        return [it for it in assets if it.resource.kind == KIND]

    def _poke_all(self) -> None:
        for track in self._declared():
            self._state.poke(track.resource.uid)

    def _wanted(self) -> list[Served]:
        """All that are there, with their keys; one without its key is not served. Deleted ones are
        served to their last user.
        """
        self._keyless, rows = {}, []
        living = {it.resource.key: it.resource for it in self._declared()}
        for track in self._declared():
            if track.resource.deleted_at_s is None:
                living[track.resource.key] = track.resource
        for resource in living.values():
            try:
                spec = parse_spec(KIND, resource.spec)
            except ValueError:
                continue  # its pass says so in its status
            assert isinstance(spec, EndpointSpec)
            if spec.reach == "Direct":
                continue
            try:
                key = self._key(spec, resource.namespace)
            except Unavailable as error:
                self._keyless[resource.namespace, resource.name] = error
                continue
            rows.append(self._row(resource, spec, key))
        return rows

    def _row(self, resource: Resource, spec: EndpointSpec, key: str) -> Served:
        """With the addresses of servers that are Functions. What an earlier controller told stays
        while this one has yet to hear of one of them.
        """
        document, keys, stays = json.loads(resource.spec), {}, False
        servers = []
        for row, server in zip(document["servers"], spec.servers, strict=True):
            if server.function is None:
                servers.append(row)
                continue
            found = self._functions.behind(server, resource.namespace)
            if isinstance(found, Behind):
                servers.append(found.row)
                keys[found.url] = found.key
            else:
                stays = stays or found.soon
        document["servers"] = servers
        return Served(resource.name, resource.namespace, document, key, keys, stays)


def _shown(health: Health | None) -> object:
    """What a change of is worth a new status: not each millisecond."""
    if health is None:
        return None
    return {**health, "servers": [{**it, "resting_s": 0} for it in health.get("servers", ())]}
