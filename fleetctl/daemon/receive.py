"""Manifests that arrive: from the documents of a request to what is stored, and what it answers.

Called by the socket server for `apply` and `set`. What is proposed and written is propose.py's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.apply import consent, propose
from fleetctl.apply.change import outcomes_of
from fleetctl.apply.edit import edits_in, keeps_source, manifest_with
from fleetctl.apply.forecast import Forecast, Forecaster, may_cost, noted
from fleetctl.apply.options import (
    Order,
    approved_in,
    declared_in,
    expect,
    namespace_of,
    order_of,
    parallelism_of,
    with_declared,
)
from fleetctl.apply.predictions.predict import ANYWAY, allowed, predicted, refuse, worth_a_look
from fleetctl.apply.predictions.world import world_of
from fleetctl.apply.requests import Reply, Request, document_of, keys_in, list_in
from fleetctl.engine.execute.functions import REASON_MISSING as FUNCTION_MISSING
from fleetctl.engine.execute.secrets import REASON_MISSING, SecretValues
from fleetctl.engine.hurry import hurry, hurry_object
from fleetctl.manifest import load
from fleetctl.specs.kinds import parse_spec
from fleetctl.specs.provider import ProviderSpec
from fleetctl.specs.secret import SecretSpec
from fleetctl.specs.values.scalars import Spec
from fleetctl.tracking.sources import Looked

if TYPE_CHECKING:
    from fleetctl.engine.capacity.prices import Market
    from fleetctl.engine.state import State
    from fleetctl.manifest import Manifest

# Kinds that starts may wait for, and the reason that they wait with.
_AWAITED = {"Secret": REASON_MISSING, "Function": FUNCTION_MISSING}


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
        declared = (name for manifest in manifests for name in _variables(manifest.spec))
        wanted = (*declared, *self._unknown_variables(manifests))
        if wanted and "env" not in request and not request.get("dryRun"):
            # The shell of the one who applies knows best, also where we have an older value.
            return {"ok": False, "needEnv": list(dict.fromkeys(wanted))}
        given = environment if isinstance(environment, dict) else {}
        values = {name: str(given[name]) for name in wanted if name in given}
        order, forecasts = await self._prepared(request, manifests)
        doubts = await self._predicted(request, manifests, order, values)
        results = self._carry_out(request, manifests, values, order, forecasts)
        said = {key: list(found.lines) for key, found in forecasts.items() if found.lines}
        warnings = [text for manifest in manifests for text in manifest.warnings] + doubts
        warnings += [it.warning for it in order.looked.values() if it.warning]
        reply: Reply = {"ok": True, "results": results, "warnings": warnings}
        if request.get("tellRead"):
            reply["read"] = sorted(
                {path for it in manifests for path in (*it.read, it.origin)} - {""}
            )
        if request.get("dryRun"):
            reply |= self._would_lose(manifests, order)
        return {**reply, "forecasts": said} if said else reply

    async def set(self, request: Request) -> Reply:
        ((kind, name, namespace),) = keys_in({"keys": [request.get("key")]})
        store = self._state.store
        edits = edits_in(request)
        draft = manifest_with(store, kind, name, edits, namespace=namespace)
        sourced = [] if keeps_source(store, draft) else [draft]
        order, forecasts = await self._prepared(request, [draft], sourced)
        await self._predicted(request, [draft], order, {})
        # Read again: somebody else may have changed the object meanwhile.
        manifest = manifest_with(store, kind, name, edits, namespace=namespace)
        results = self._carry_out(request, [manifest], {}, order, forecasts)
        return {"ok": True, "results": results}

    async def _prepared(
        self,
        request: Request,
        manifests: list[Manifest],
        sourced: list[Manifest] | None = None,
    ) -> tuple[Order, Mapping[str, Forecast]]:
        """How to apply them and what that will cost: all that takes its time, found out before the
        change itself, which waits for nothing. sourced: those whose sources are read; default all.
        """
        sourced = manifests if sourced is None else sourced
        state, sources = self._state, self._state.sources
        looked: Mapping[str, Looked] = {}
        if sources is not None:
            looked = await sources.look(sourced)
            if not request.get("dryRun"):
                looked = await asyncio.to_thread(sources.keep, sourced, looked)
        providers = with_declared(state.providers, declared_in(manifests))
        order = replace(
            order_of(request),
            parallelism=parallelism_of(providers),
            looked=looked,
            sources=sources,
        )
        forecaster = self._forecaster
        if forecaster is None or not may_cost(manifests, providers, self._market.said):
            return order, {}
        return order, await asyncio.to_thread(forecaster, manifests, order)

    def _carry_out(
        self,
        request: Request,
        manifests: list[Manifest],
        values: Mapping[str, str],
        order: Order,
        forecasts: Mapping[str, Forecast],
    ) -> list[Mapping[str, str]]:
        """Store what the request wishes for, unless it is a dry run; only then the values of
        secrets are taken over. Raises NeedsConsent.
        """
        state = self._state
        now_s = state.clock.now_s()
        changes = noted(propose.propose(state.store, manifests, order, now_s), forecasts)
        expect(request, state.store, changes)
        if request.get("dryRun"):
            return outcomes_of(changes)
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
        return outcomes_of(changes)

    def _would_lose(self, manifests: list[Manifest], order: Order) -> Reply:
        """What the apply itself would ask about first."""
        state = self._state
        now_s = state.clock.now_s()
        try:
            consent.check(propose.propose(state.store, manifests, order, now_s), (), now_s)
        except consent.NeedsConsent as error:
            return {"losses": list(error.losses), "hint": error.hint}
        return {}

    async def _predicted(
        self,
        request: Request,
        manifests: Sequence[Manifest],
        order: Order,
        values: Mapping[str, str],
    ) -> list[str]:
        """Warnings. Raises ManifestErrors where something is known to be refused, or to wait for
        what nobody has said may be missing.
        """
        state = self._state
        looked_at = [it for it in manifests if worth_a_look(it.spec)]
        if not looked_at:
            return []
        # What goes has no say in it.
        plain = replace(order, pruning=None)
        changes = propose.propose(state.store, looked_at, plain, state.clock.now_s())
        world = world_of(
            state.store,
            changes,
            state.providers,
            self._market.said,
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
            template = getattr(manifest.spec, "template", None)
            for name in template.secrets if template is not None else ():
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
