"""Manifests that arrive: from the documents of a request to what is stored, and what it answers.

Called by the socket server for `apply` and `set`. What is proposed and written is propose.py's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.apply import consent, propose
from fleetctl.apply.change import CONFIGURED, PRUNED, Change, outcomes_of, works_of
from fleetctl.apply.forecast import Forecast, Forecaster, may_cost, noted
from fleetctl.apply.kept import refuse_kept
from fleetctl.apply.merge import with_hand_fields
from fleetctl.apply.policies.told import refuse as refuse_denied
from fleetctl.apply.policies.told import warnings_of
from fleetctl.apply.predictions.predict import ANYWAY, allowed, predicted, refuse, worth_a_look
from fleetctl.apply.predictions.world import world_of
from fleetctl.apply.request.fields import Reply, Request, document_of, keys_in, list_in
from fleetctl.apply.request.options import (
    Order,
    approved_in,
    declared_in,
    expect,
    namespace_of,
    order_of,
    parallelism_of,
    with_declared,
)
from fleetctl.apply.write.edit import edits_in, keeps_source, manifest_with
from fleetctl.engine.execute.functions import REASON_MISSING as FUNCTION_MISSING
from fleetctl.engine.execute.secrets import REASON_MISSING, SecretValues
from fleetctl.engine.hurry import hurry, hurry_object
from fleetctl.engine.kinds.endpoints.endpoints import MISSING as ENDPOINT_MISSING
from fleetctl.manifest import load
from fleetctl.specs.blocks.common import work_in
from fleetctl.specs.blocks.notify import secrets_in
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.kinds.secret import SecretSpec
from fleetctl.specs.values.scalars import Spec
from fleetctl.tracking.looked import Looked

if TYPE_CHECKING:
    from fleetctl.engine.capacity.prices import Market
    from fleetctl.engine.shared.state import State
    from fleetctl.manifest import Manifest

# Kinds that starts may wait for, and the reason that they wait with.
_AWAITED = {"Secret": REASON_MISSING, "Function": FUNCTION_MISSING, "Endpoint": ENDPOINT_MISSING}


class Receiver:
    """forecaster: None = nothing is said of costs."""

    def __init__(
        self,
        state: State,
        market: Market,
        secrets: SecretValues,
        forecaster: Forecaster | None = None,
    ) -> None:
        self._state, self._market = state, market
        self._secrets = secrets
        self._forecaster = forecaster

    async def apply(self, request: Request) -> Reply:
        documents = [document_of(item) for item in list_in(request, "documents")]
        environment = request.get("env")
        pruned = bool(request.get("prune"))  # by an empty directory, too
        manifests = await asyncio.to_thread(
            load, documents, namespace_of(request), may_be_empty=pruned
        )
        manifests = with_hand_fields(self._state.store, manifests)
        declared = (name for manifest in manifests for name in _variables(manifest.spec))
        wanted = (*declared, *self._unknown_variables(manifests))
        if wanted and "env" not in request and not request.get("dryRun"):
            # The shell of the one who applies knows best, also where we have an older value.
            return {"ok": False, "needEnv": list(dict.fromkeys(wanted))}
        given = environment if isinstance(environment, dict) else {}
        values = {name: str(given[name]) for name in wanted if name in given}
        order = await self._prepared(request, manifests)
        if self._state.sources is not None:
            manifests = await self._state.sources.required(manifests, order.looked)
        forecasts, doubts = await self._foreseen(request, manifests, order, values)
        changes = self._carry_out(request, manifests, values, order, forecasts)
        doubts += warnings_of(changes)
        planned = {key: found.planned for key, found in forecasts.items()}
        warnings = [text for manifest in manifests for text in manifest.warnings] + doubts
        warnings += [text for it in order.looked.values() for text in it.warnings]
        reply: Reply = {"ok": True, "results": outcomes_of(changes), "warnings": warnings}
        if request.get("tellRead"):
            reply["read"] = sorted(
                {path for it in manifests for path in (*it.read, it.origin)} - {""}
            )
        if request.get("tellWork"):
            reply["works"] = works_of(changes)
        if request.get("dryRun"):
            reply |= self._would_lose(changes)
        return {**reply, "planned": planned} if planned else reply

    async def set(self, request: Request) -> Reply:
        ((kind, name, namespace),) = keys_in({"keys": [request.get("key")]})
        store = self._state.store
        edits = edits_in(request)
        draft = manifest_with(store, kind, name, edits, namespace=namespace)
        sourced = [] if keeps_source(store, draft) else [draft]
        order = await self._prepared(request, [draft], sourced)
        order = replace(order, by_hand=True)
        forecasts, _ = await self._foreseen(request, [draft], order, {})
        # Read again: somebody else may have changed the object meanwhile.
        manifest = manifest_with(store, kind, name, edits, namespace=namespace)
        changes = self._carry_out(request, [manifest], {}, order, forecasts)
        return {"ok": True, "results": outcomes_of(changes), "warnings": warnings_of(changes)}

    async def _prepared(
        self,
        request: Request,
        manifests: list[Manifest],
        sourced: list[Manifest] | None = None,
    ) -> Order:
        """How to apply them: their sources are read before the change itself, which waits for
        nothing. sourced: those whose sources are read; default all.
        """
        sourced = manifests if sourced is None else sourced
        state, sources = self._state, self._state.sources
        looked: Mapping[str, Looked] = {}
        if sources is not None:
            looked = await sources.look(sourced)
            if not request.get("dryRun"):
                looked = await asyncio.to_thread(sources.keep, sourced, looked)
        providers = with_declared(state.providers, declared_in(manifests))
        return replace(
            order_of(request),
            parallelism=parallelism_of(providers),
            looked=looked,
            sources=sources,
        )

    def _changes(self, manifests: Sequence[Manifest], options: Order) -> list[Change]:
        state = self._state
        return propose.propose(state.store, manifests, options, state.clock.now_s())

    async def _foreseen(
        self,
        request: Request,
        manifests: Sequence[Manifest],
        options: Order,
        values: Mapping[str, str],
    ) -> tuple[Mapping[str, Forecast], list[str]]:
        """What they will cost, and warnings; of plain work of this machine neither is asked.

        Raises ManifestErrors where something is known to be refused, or to wait for what nobody has
        said may be missing.
        """
        providers = with_declared(self._state.providers, declared_in(manifests))
        forecaster = self._forecaster
        if not may_cost(manifests, providers, self._market.declared):
            forecaster = None
        looked_at = [it for it in manifests if worth_a_look(it.spec)]
        if forecaster is None and not looked_at:
            return {}, []
        changes = self._changes(manifests, options)
        forecasts = {} if forecaster is None else await asyncio.to_thread(forecaster, changes)
        return forecasts, await self._predicted(request, looked_at, changes, values)

    def _carry_out(
        self,
        request: Request,
        manifests: list[Manifest],
        values: Mapping[str, str],
        options: Order,
        forecasts: Mapping[str, Forecast],
    ) -> list[Change]:
        """Store what the request asks for, unless it is a dry run; only then the values of
        secrets are taken over. Proposed again: the store may have changed while the forecast and
        the predictions were waited for. Raises NeedsConsent and PolicyDenied.
        """
        state = self._state
        now_s = state.clock.now_s()
        costs = {key: found.estimate for key, found in forecasts.items()}
        changes = noted(self._changes(manifests, replace(options, costs=costs)), forecasts)
        refuse_denied(changes, manifests)
        expect(request, state.store, changes)
        if not request.get("override"):
            named = {it.key for it in manifests}
            moved = (it for it in changes if it.outcome == CONFIGURED and it.key in named)
            refuse_kept(it.before for it in moved if it.before is not None)
        if request.get("dryRun"):
            return changes
        if not request.get("yes"):
            consent.check(changes, approved_in(request), now_s)
        self._secrets.learn(values)
        propose.commit(state.store, changes, now_s)
        for change in changes:
            state.poke(change.after.uid)
            hurry_object(state, change.after.uid)
        for kind, reason in _AWAITED.items():
            if any(manifest.kind == kind for manifest in manifests):
                hurry(state, reason)
        return changes

    def _would_lose(self, changes: Sequence[Change]) -> Reply:
        """What the apply itself would ask about first."""
        try:
            consent.check(changes, (), self._state.clock.now_s())
        except consent.NeedsConsent as error:
            return {"losses": list(error.losses), "hint": error.hint}
        return {}

    async def _predicted(
        self,
        request: Request,
        looked_at: Sequence[Manifest],
        changes: Sequence[Change],
        values: Mapping[str, str],
    ) -> list[str]:
        if not looked_at:
            return []
        state = self._state
        changes = [it for it in changes if it.outcome != PRUNED]  # what goes has no say in it
        world = world_of(
            state.store,
            changes,
            state.providers,
            self._market.declared,
            lambda name: values.get(name) or self._secrets.value(name),
            starts_here=True,
        )
        found = await predicted(looked_at, changes, world)
        anyway = ANYWAY if request.get("verb") == "apply" else ""
        return refuse(found, allowed(request), anyway)

    def _unknown_variables(self, manifests: Sequence[Manifest]) -> Iterator[str]:
        """Of stored Secrets that these manifests name: a controller that began in another shell
        does not have them.
        """
        for manifest in manifests:
            work = work_in(manifest.spec)
            template = getattr(work, "template", None)
            told = [name for _, _, name in secrets_in(getattr(work, "notify", ()))]
            for name in (*(template.secrets if template is not None else ()), *told):
                stored = self._state.store.resources.get("Secret", name, manifest.namespace)
                if stored is not None:
                    spec = parse_spec("Secret", stored.spec)
                    assert isinstance(spec, SecretSpec)
                    yield from self._secrets.missing(spec.from_env)


def _variables(spec: Spec) -> tuple[str, ...]:
    """Of the shell of who applies, that a Secret or an account has its values from."""
    if isinstance(spec, SecretSpec):
        return spec.from_env
    if isinstance(spec, ProviderSpec) and spec.account is not None:
        return spec.account.variables
    return ()
