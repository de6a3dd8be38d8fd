"""Manages the endpoints of an engine: their gateway runs while there is one, receives the endpoints
and the allowed callers, and its counts are stored. Starts wait here for an endpoint that is not
reachable yet.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from fleetctl.common.errors import StoreError, Unavailable
from fleetctl.common.event_loop import wait_or_wake
from fleetctl.engine.execute.secrets import ResolvedSecrets
from fleetctl.engine.kinds.endpoints import endpoint_status
from fleetctl.engine.kinds.endpoints.endpoint_status import build_status, find_lack
from fleetctl.engine.kinds.endpoints.grants import EndpointCharges, EndpointGrants
from fleetctl.engine.kinds.endpoints.served_functions import (
    FunctionServer,
    ServedFunctions,
    ServerLack,
)
from fleetctl.engine.kinds.traces import RunTraces
from fleetctl.engine.money.budgets import Budgets
from fleetctl.engine.money.ledger import RunCharges
from fleetctl.engine.shared.part import EnginePart, Helper, PartWiring
from fleetctl.engine.sleeping import nudge_starts
from fleetctl.gateway.gateway_client import EndpointConfig, Gateway
from fleetctl.providers.contract.base import EndpointAccess, Relaying, RunRequest, ref_of
from fleetctl.specs.kinds.endpoint import EndpointSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.values.hints import HintedText
from fleetctl.specs.values.model_urls import V1, url_of
from fleetctl.specs.values.namespaces import object_key

if TYPE_CHECKING:
    from fleetctl.controllers.model import Resource
    from fleetctl.controllers.status_keys import Status
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import ResourceWork, Track

log = logging.getLogger("fleetctl.engine")

KIND = "Endpoint"
MISSING = "EndpointMissing"
NOT_READY = "EndpointNotReady"
TURN_GAP_S = 0.2  # between two turns at least, for any wake
REFRESH_S = 2.0  # between two looks at how busy they are
PROBE_S = 15.0  # between two health checks of servers that reply
EAGER_S = 2.0  # and to such that do not
HEAR_GAP_S = 0.5  # between two transactions with usage
LISTEN_S = 10.0
COUNT_WAIT_S = (
    60.0  # a finished object is reported as such once its calls are counted, or after this time
)
COUNTING = "the cost of its calls is being counted"
COUNTS_LATER = "the gateway did not answer: the cost of its last calls is counted once it does"
_UP = ("Ready", "Starting")  # a Function that may have containers
Secrets = Callable[[tuple[str, ...], str], ResolvedSecrets]
Health = Mapping[str, Any]
Specs = Mapping[tuple[str, str], EndpointSpec]  # by namespace and name


class GatewayLink(NamedTuple):
    """The gateway, its grants, and the resulting charges."""

    gateway: Gateway
    grants: EndpointGrants
    charging: EndpointCharges


class Endpoints(EnginePart):
    """link: None = this engine has no gateway, and its endpoints are never ready."""

    kind = KIND
    rests = True

    def __init__(
        self,
        state: EngineState,
        *,
        secrets: Secrets,
        functions: ServedFunctions,
        link: GatewayLink | None = None,
    ) -> None:
        self._state, self._secrets, self._link = state, secrets, link
        self._functions = functions
        self._health: dict[tuple[str, str], Health] = {}  # by namespace and name
        self._trouble: Unavailable | None = None  # with the gateway itself
        self._keyless: dict[tuple[str, str], Unavailable] = {}
        self._served: list[EndpointConfig] | None = None  # the set that the gateway has
        self._specs: Specs = {}  # of that set
        self._lacks: dict[
            str, ServerLack
        ] = {}  # by uid of endpoints whose Functions are not reachable
        self._woken = asyncio.Event()
        self._serving = asyncio.Event()  # set while the gateway has a set
        self._looked_at: dict[str, int] = {}  # uid -> the generation that a pass saw last
        self._seq = 0
        self._caught_up = False  # the usage before this controller is stored
        self._uncounted: dict[str, float] = {}  # uid -> since when it has no running unit

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        state = wiring.state
        budgets = wiring.get(Budgets)
        functions = ServedFunctions(state, denied=budgets.serving_denied)
        gateway: Gateway | None = wiring.services.gateway
        if gateway is None:
            return cls(state, secrets=wiring.secrets, functions=functions)
        traces = wiring.get(RunTraces)
        grants = EndpointGrants(state, gateway, budgets, traces.traceparent_of)
        charges = wiring.get(RunCharges)
        charging = EndpointCharges(
            state,
            charges=charges,
            budgets=budgets,
            grants=grants,
        )
        link = GatewayLink(gateway, grants, charging)
        return cls(
            state,
            secrets=wiring.secrets,
            functions=functions,
            link=link,
        )

    def list_helpers(self) -> tuple[Helper, ...]:
        return (self.tend, self.listen)

    # -- starts ------------------------------------------------------------------------------------

    async def join(self, work: ResourceWork, request: RunRequest) -> RunRequest:
        """Adds to a run's request the variables of its endpoints. Raises Unavailable: the start
        waits.
        """
        names = request.template.asks
        namespace = work.resource.namespace
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
        grants = self._link.grants
        if not await grants.admit(grants.make_grant(work, request.run, names)):
            raise Unavailable(
                "the calls of its endpoints take all that its budget has left",
                reason="BudgetExhausted",
                hint="raise the budget's `maxCost`",
            )
        url, token = self._link.gateway.access(request.run)
        share = min(float(spec.max_fallback_share) for spec in specs.values())
        return replace(
            request,
            endpoints=EndpointAccess(
                names,
                first.models,
                url,
                token,
                share,
            ),
        )

    def _spec(self, name: str, namespace: str) -> EndpointSpec:
        for track in self._list_endpoints():  # read by its last pass: starts are many
            row = track.resource
            known = (row.name, row.namespace) == (name, namespace) and row.deleted_at_s is None
            if known and isinstance(track.spec, EndpointSpec):
                return track.spec
        resource = self._state.store.resources.get(KIND, name, namespace)
        if resource is None:
            # A deleted one serves its users to their end.
            tracks = (it.resource for it in self._list_endpoints())
            key = object_key(KIND, name, namespace)
            resource = next((it for it in tracks if it.key == key), None)
        if resource is None:
            raise Unavailable(
                f"{object_key(KIND, name, namespace)} is not declared",
                reason=MISSING,
                hint=f"apply a manifest of kind Endpoint with the name `{name}`",
            )
        return EndpointSpec.model_validate_json(resource.spec)

    def _must_be_ready(
        self,
        name: str,
        namespace: str,
        spec: EndpointSpec,
    ) -> None:
        found = self._explain_lack(name, namespace, spec)
        if found is None and self._specs.get((namespace, name)) != spec:
            # A call in between would go by the rules of a former spec, or of a deleted namesake.
            found = NOT_READY, "the gateway has not received its present spec yet", ""
        if found is not None:
            self._woken.set()
            reason, message, hint = found
            key = object_key(KIND, name, namespace)
            text = f"{key}: {message}" if reason == NOT_READY else f"{key}: {reason}: {message}"
            raise Unavailable(
                text,
                reason=NOT_READY,
                hint=hint,
                retry_after_s=EAGER_S / 2,
            )

    def _explain_lack(
        self,
        name: str,
        namespace: str,
        spec: EndpointSpec,
    ) -> tuple[str, str, str] | None:
        trouble = self._keyless.get((namespace, name)) or self._trouble
        if spec.reach != "Direct":
            if self._link is None:
                return NOT_READY, "this controller has no gateway", ""
            if trouble is not None:
                return trouble.reason, str(trouble), trouble.hint or ""
            if lack := self._without(spec, namespace):
                return lack.reason, lack.message, lack.hint
        return find_lack(spec, self._health.get((namespace, name)))

    def _without(self, spec: EndpointSpec, namespace: str) -> ServerLack | None:
        """Returns the first reason, where all its servers are Functions that are not reachable."""
        if len(spec.functions) < len(spec.servers):
            return None
        found = [self._functions.behind(it, namespace) for it in spec.servers]
        lacks = [it for it in found if isinstance(it, ServerLack)]
        if len(lacks) == len(found):
            return lacks[0]
        return None

    def _list_lacking_functions(self) -> dict[str, ServerLack]:
        found: dict[str, ServerLack] = {}
        for track in self._list_endpoints():
            spec = track.spec
            if isinstance(spec, EndpointSpec) and spec.reach != "Direct":
                lack = self._without(spec, track.resource.namespace)
                if lack is not None:
                    found[track.resource.uid] = lack
        return found

    def _direct(self, spec: EndpointSpec, namespace: str) -> Mapping[str, str]:
        """Returns the first server's address and the key itself, as secrets."""
        key = self._key(spec, namespace)
        url = spec.servers[0].base
        usual = next(iter(spec.models.values()), None)
        api = spec.servers[0].api or spec.api
        return {
            "OPENAI_BASE_URL": url_of(url, f"{V1}/", api=api).rstrip("/"),
            "OPENAI_API_KEY": key or "none",
            "OLLAMA_HOST": url.removesuffix(V1),
            **({"FLEETCTL_LLM_MODEL": usual} if usual else {}),
        }

    def _key(self, spec: EndpointSpec, namespace: str) -> str:
        """Returns the API key of an endpoint; empty where its spec names none. Raises Unavailable
        where the Secret does not have it.
        """
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

    def find_lack(self, track: Track) -> tuple[str, HintedText] | None:
        """Returns reason and sentence of an endpoint that is not reachable now."""
        assert isinstance(track.spec, EndpointSpec)
        row = track.resource
        found = self._explain_lack(row.name, row.namespace, track.spec)
        if found is not None:
            return found[0], HintedText(found[1], found[2])
        return None

    def add_status(
        self,
        track: Track,
        status: Status,
        _now_s: float,
    ) -> Status:
        shows = self.status(track)
        # For a deleted object, its wait is more important than its usual status.
        return {
            **shows,
            **status,
            "message": status.get("message") or shows.get("message", ""),
            "hint": status.get("hint") or shows.get("hint", ""),
        }

    def status(self, track: Track) -> Status:
        assert isinstance(track.spec, EndpointSpec)
        row = track.resource
        if self._looked_at.get(row.uid) != row.generation:
            self._looked_at[row.uid] = row.generation
            self._woken.set()  # it is new, or another
        health = self._health.get((row.namespace, row.name))
        return build_status(track.spec, health, self._state.store.calls.sum_of(row.uid))

    def list_inputs(self, work: ResourceWork, _now_s: float) -> Mapping[str, Any]:
        counting, counts_later = self.counting(work)
        batched = self.batched(work.resource.uid)
        return {"counting": counting, "counts_later": counts_later, "batched": batched}

    def counting(self, work: ResourceWork) -> tuple[str, str]:
        """Returns why the calls of an object without runs are not counted yet, and why they are
        counted later, once that wait is over; or empty.
        """
        uid = work.resource.uid
        history = work.history
        if history.live or history.sandboxes or self._link is None or not self._may_owe(work):
            self._uncounted.pop(uid, None)
            return "", ""
        now_s = self._state.clock.now_s()
        if uid not in self._uncounted:
            self._uncounted[uid] = now_s
            self._link.grants.change()  # a report received after the gateway takes it is complete
            self._woken.set()
        until_s = self._uncounted[uid] + COUNT_WAIT_S
        if now_s >= until_s:
            return "", COUNTS_LATER
        self._state.queue.add(uid, until_s)
        return COUNTING, ""

    def batched(self, uid: str) -> str:
        """Returns in which batches the rows of an object are, as a sentence; or empty."""
        return endpoint_status.of_object(self._health.values(), uid)

    # -- the gateway -------------------------------------------------------------------------------

    async def tend(self) -> None:
        """Keeps the gateway running and updated, and watches the endpoints, for ever."""
        while True:
            if self._served is None and not self._list_endpoints():
                await self._woken.wait()  # a controller without endpoints does not wake for them
            else:
                await wait_or_wake(self._woken, REFRESH_S)
            self._woken.clear()
            await self.turn()
            await asyncio.sleep(TURN_GAP_S)

    async def turn(self) -> None:
        if self._link is None or not self._list_endpoints():
            self._keep_served(None, {})
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
                nudge_starts(self._state, NOT_READY)

    async def listen(self) -> None:
        """Stores reported usage, for ever."""
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

    async def _hear(self, link: GatewayLink, wait_s: float) -> None:
        """Waits for new usage rows of the gateway and charges them. Raises Unavailable."""
        version = link.grants.version
        try:
            self._seq, rows = await link.gateway.usage(self._seq, wait_s=wait_s)
            if rows:
                link.charging.hear(rows)
            link.grants.all_heard(version)
            self._caught_up = True
        except StoreError as error:
            self._seq = 0  # read again, which adds no amount twice
            log.error("calls not stored", extra={"error": str(error)})

    async def close(self) -> None:
        if self._link is not None:
            await self._link.gateway.close(leave=self._state.live_runs() > 0)

    def _keep_served(self, served: list[EndpointConfig] | None, specs: Specs) -> None:
        """Stores the set that the gateway has, None for no set; `listen` waits for one, and starts
        for their endpoints in it.
        """
        self._served = served
        if specs != self._specs:
            self._specs = specs
            nudge_starts(self._state, NOT_READY)
        if served is None:
            self._serving.clear()
        else:
            self._serving.set()

    async def _turn(self, link: GatewayLink) -> None:
        gateway = link.gateway
        grants = link.grants
        anew = await gateway.up()
        if anew:
            self._keep_served(None, {})
            grants.change()
        keyless = set(self._keyless)
        wanted, specs = self._build_configs()
        if set(self._keyless) != keyless:
            self._poke_all()
        lacks, self._lacks = self._lacks, self._list_lacking_functions()
        if lacks != self._lacks:
            self._poke_all()
            nudge_starts(self._state, NOT_READY)
        if wanted != self._served:
            await gateway.serve(wanted)
            self._keep_served(wanted, specs)
            grants.change()
        if self._seq == 0:
            await self._hear(link, 0.0)  # objects that an earlier controller granted
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
        self._functions.record_failures({it["url"]: it["why"] for it in servers if it["why"]})
        await self._functions.count(it["url"] for it in servers if it["state"] in _UP)

    def _may_owe(self, work: ResourceWork) -> bool:
        """Returns true if calls may be uncounted. Before the gateway's first report, any object may
        have made calls, for an earlier controller.
        """
        assert self._link is not None
        if self._link.grants.may_owe(work.resource.uid):
            return True
        return not self._caught_up and bool(
            self._list_endpoints() and work.controller.template(0).asks
        )

    async def _count(self, link: GatewayLink) -> None:
        """Reads the calls of objects without runs, and releases the objects that owe no charge."""
        await self._hear(link, 0.0)
        for uid in [it for it in self._uncounted if not link.grants.may_owe(it)]:
            del self._uncounted[uid]
            self._state.poke(uid)

    def _relay(self, link: GatewayLink) -> None:
        """Carries the calls of runs that an earlier controller began, and of all runs where the
        gateway now listens elsewhere.
        """
        for track in self._state.tracks.values():
            for run in track.work.history.live.values() if track.work is not None else ():
                backend = self._state.providers.get(run.provider)
                if run.handle and link.grants.has(run.name) and isinstance(backend, Relaying):
                    url, token = link.gateway.access(run.name)
                    backend.relay(ref_of(run), EndpointAccess((), {}, url, token))

    def _take(self, found: dict[tuple[str, str], Health]) -> None:
        before = self._health
        self._health = found
        for track in self._list_endpoints():
            name = track.resource.namespace, track.resource.name
            if _comparable_health(before.get(name)) != _comparable_health(found.get(name)):
                self._state.poke(track.resource.uid)
        for uid in (
            endpoint_status.find_changed(before.values(), found.values())
            & self._state.tracks.keys()
        ):
            self._state.poke(uid)
        ready = {name for name, health in found.items() if health.get("ready")}
        if any(not before.get(name, {}).get("ready") for name in ready):
            # Hundreds of prompts may wait, each a minute by now.
            nudge_starts(self._state, NOT_READY)

    def _list_endpoints(self) -> list[Track]:
        return self._state.tracks.of_kind(KIND)

    def _poke_all(self) -> None:
        for track in self._list_endpoints():
            self._state.poke(track.resource.uid)

    def _build_configs(self) -> tuple[list[EndpointConfig], Specs]:
        """Returns all endpoints with their keys, and their specs; one without its key is not
        served. Deleted ones are served to their last user.
        """
        self._keyless = {}
        rows = []
        specs = {}
        living = {it.resource.key: it.resource for it in self._list_endpoints()}
        for track in self._list_endpoints():
            if track.resource.deleted_at_s is None:
                living[track.resource.key] = track.resource
        for resource in living.values():
            try:
                spec = parse_spec(KIND, resource.spec)
            except ValueError:
                continue  # its pass reports this in its status
            assert isinstance(spec, EndpointSpec)
            if spec.reach == "Direct":
                continue
            try:
                key = self._key(spec, resource.namespace)
            except Unavailable as error:
                self._keyless[resource.namespace, resource.name] = error
                continue
            rows.append(self._row(resource, spec, key))
            specs[resource.namespace, resource.name] = spec
        return rows, specs

    def _row(
        self,
        resource: Resource,
        spec: EndpointSpec,
        key: str,
    ) -> EndpointConfig:
        """Returns a row with the addresses of servers that are Functions. The addresses of an
        earlier controller stay while this one has not found a server yet.
        """
        document = json.loads(resource.spec)
        keys = {}
        stays = False
        servers = []
        for row, server in zip(document["servers"], spec.servers, strict=True):
            if server.function is None:
                servers.append(row)
                continue
            found = self._functions.behind(server, resource.namespace)
            if isinstance(found, FunctionServer):
                servers.append(found.row)
                keys[found.url] = found.key
            else:
                stays = stays or found.soon
        document["servers"] = servers
        return EndpointConfig(
            resource.name,
            resource.namespace,
            document,
            key,
            keys,
            stays,
        )


def _comparable_health(health: Health | None) -> object:
    """Returns the fields whose change deserves a new status: not each millisecond."""
    if health is None:
        return None
    return {**health, "servers": [{**it, "resting_s": 0} for it in health.get("servers", ())]}
