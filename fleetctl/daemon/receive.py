"""Handles manifests that arrive: from the documents of a request to the stored objects and the
reply.

Called by the socket server for `apply` and `set`. propose.py proposes the changes, store_changes.py
stores them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.apply import consent, propose
from fleetctl.apply.change import CONFIGURED, PRUNED, UNCHANGED, Change, outcomes_of, works_of
from fleetctl.apply.cost.estimate import CostForecast, Forecaster, note_estimates
from fleetctl.apply.draft import draft_partial
from fleetctl.apply.merge import with_hand_fields
from fleetctl.apply.ownership import refuse_kept
from fleetctl.apply.policies import evaluation
from fleetctl.apply.policies.judge import POLICY
from fleetctl.apply.policies.report import problems_of, refuse_problems, warnings_of
from fleetctl.apply.policies.report import raise_if_denied as refuse_denied
from fleetctl.apply.predictions.predict import (
    ANYWAY,
    is_worth_a_look,
    make_predictions,
    read_allowed,
    split_predictions,
)
from fleetctl.apply.predictions.world import Prediction, world_of
from fleetctl.apply.request import (
    ApplyOptions,
    Reply,
    Request,
    actor_in,
    approved_in,
    author_in,
    check_expected,
    document_of,
    keys_in,
    list_in,
    list_sent_paths,
    namespace_of,
    order_of,
    parallelism_of,
    reads_for,
    refuse_beyond,
    refuse_changes_beyond,
    refuse_reach,
    select_providers,
    traceparent_in,
    with_author,
    with_declared,
    with_trace,
)
from fleetctl.apply.write.commit import edits_in, keeps_source, manifest_with
from fleetctl.apply.write.store_changes import store_changes
from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.engine.capacity.price_book import may_cost
from fleetctl.engine.execute.secrets import REASON_MISSING, SecretValues
from fleetctl.engine.execute.start_specs import REASON_MISSING as FUNCTION_MISSING
from fleetctl.engine.kinds.endpoints.endpoints import MISSING as ENDPOINT_MISSING
from fleetctl.engine.kinds.traces import ApplyTrace, RunTraces
from fleetctl.engine.sleeping import nudge_object, nudge_starts
from fleetctl.manifest import LoadErrors, load_manifests
from fleetctl.manifest.files.patience import call_in_file_thread
from fleetctl.manifest.problems import ManifestErrors
from fleetctl.specs.blocks.common import work_in
from fleetctl.specs.blocks.notify import secrets_in
from fleetctl.specs.kinds.batchjob import files_of
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.secret import SecretSpec
from fleetctl.specs.values.scalars import Spec
from fleetctl.tracking.annotations import ESTIMATE
from fleetctl.tracking.source_state import SourceState

if TYPE_CHECKING:
    from fleetctl.engine.capacity.price_book import PriceBook
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.manifest import Manifest

# Kinds that starts may wait for, and the reason that they wait with.
_AWAITED = {"Secret": REASON_MISSING, "Function": FUNCTION_MISSING, "Endpoint": ENDPOINT_MISSING}

# Looks at the store before policies are given up: each but the last brought new questions.
PROPOSALS_MAX = 10
QUICK_CHARS_MAX = 16_384  # about two milliseconds of reading


class ManifestReceiver:
    """The receiver. forecaster: None = no costs are reported."""

    def __init__(
        self,
        state: EngineState,
        market: PriceBook,
        secrets: SecretValues,
        forecaster: Forecaster | None = None,
        *,
        traces: RunTraces | None = None,
    ) -> None:
        self._state = state
        self._traces = RunTraces(state, sink=None) if traces is None else traces
        self._market = market
        self._secrets = secrets
        self._forecaster = forecaster

    async def apply(self, request: Request) -> Reply:
        trace = self._begin_trace(request)
        manifests = await self.read_manifests(request)
        wanted = [name for it in manifests for name in _list_variables(it.spec)]
        wanted += self._unknown_variables(manifests)
        if wanted and "env" not in request and not request.get("dryRun"):
            # The shell of the user who applies knows best, also where we have an older value.
            return {"ok": False, "needEnv": list(dict.fromkeys(wanted))}
        environment = request.get("env")
        given = environment if isinstance(environment, dict) else {}
        values = {name: str(given[name]) for name in wanted if name in given}

        order = await self._prepare_options(request, manifests)
        sources = self._state.sources
        if sources is not None:
            manifests = await sources.required(manifests, order.looked, self._state.store)
        forecasts, doubts = await self._forecast_costs(request, manifests, order, values)
        changes = await self._carry_out(request, manifests, values, order, forecasts, trace)

        warnings = [text for it in manifests for text in it.warnings]
        warnings += [self._traces.problem] if self._traces.problem else []
        warnings += [*doubts, *warnings_of(changes)]
        warnings += [text for it in order.looked.values() for text in it.warnings]
        reply: Reply = {"ok": True, "results": outcomes_of(changes), "warnings": warnings}
        if request.get("tellRead"):
            read = {path for it in manifests for path in (*it.read, it.origin)}
            reply["read"] = sorted(read - {""})
        if request.get("tellWork"):
            reply["works"] = works_of(changes)
        if request.get("dryRun"):
            reply |= self._list_losses(request, changes)
        if forecasts:
            reply["planned"] = {key: found.planned for key, found in forecasts.items()}
        return reply

    async def read_manifests(self, request: Request) -> list[Manifest]:
        """Returns the manifests of a request, with the fields that users set by hand. Raises
        ManifestErrors with all that is wrong with them, and Refused for objects beyond the caller's
        reach.
        """
        actor = actor_in(request)
        documents = [document_of(item) for item in list_in(request, "documents")]
        pruned = bool(request.get("prune"))  # by an empty directory, too
        load = partial(load_manifests, documents, namespace_of(request), may_be_empty=pruned)
        try:
            with reads_for(actor, documents):
                manifests = load() if _reads_quickly(request) else await call_in_file_thread(load)
        except LoadErrors as error:
            raise await self._check_round(request, error) from None

        refuse_reach(actor, manifests, sent=list_sent_paths(documents))
        refuse_beyond(actor, [(it.kind, it.name, it.namespace) for it in manifests])
        return with_hand_fields(self._state.store, manifests)

    async def _check_round(self, request: Request, error: LoadErrors) -> ManifestErrors:
        """Returns the mistakes, with what else is wrong with these manifests and the sound ones."""
        read = [*error.sound, *error.partial]
        variables = [name for it in read for name in _list_variables(it.spec)]
        variables += self._unknown_variables(read)
        values = dict.fromkeys(variables, "of a shell that is asked later")
        try:
            changes = await self._changes(error.sound, ApplyOptions(gathers=True))
        except FleetctlError:
            changes = []  # refusals of the whole set are reported once every manifest is readable
        partial = [draft_partial(self._state.store, it) for it in error.partial]
        found = await self._predict(read, [*changes, *partial], values, {})
        wrong, _ = split_predictions(found, read_allowed(request))
        return error.beside([*wrong, *problems_of(changes, error.sound)])

    def _begin_trace(self, request: Request) -> ApplyTrace | None:
        traceparent = traceparent_in(request)
        if request.get("dryRun") or not (traceparent or self._traces.exports):
            return None
        return self._traces.begin_apply(traceparent, self._state.clock.now_s())

    async def set(self, request: Request) -> Reply:
        trace = self._begin_trace(request)
        ((kind, name, namespace),) = keys_in({"keys": [request.get("key")]})
        refuse_beyond(actor_in(request), [(kind, name, namespace)])
        store = self._state.store
        edits = edits_in(request)
        draft = manifest_with(
            store,
            kind,
            name,
            edits,
            namespace=namespace,
        )

        sourced = [] if keeps_source(store, draft) else [draft]
        stored = store.resources.get(kind, name, namespace)
        refuse_reach(
            actor_in(request), [draft], {draft.key: stored.spec if stored is not None else "{}"}
        )
        order = await self._prepare_options(request, [draft], sourced)
        order = replace(order, by_hand=True)
        forecasts, _ = await self._forecast_costs(request, [draft], order, {})

        # Read again: another user may have changed the object meanwhile.
        manifest = manifest_with(
            store,
            kind,
            name,
            edits,
            namespace=namespace,
        )
        changes = await self._carry_out(
            request,
            [manifest],
            {},
            order,
            forecasts,
            trace,
        )
        return {
            "ok": True,
            "results": outcomes_of(changes),
            "warnings": warnings_of(changes),
            **(self._list_losses(request, changes) if request.get("dryRun") else {}),
        }

    async def _prepare_options(
        self,
        request: Request,
        manifests: list[Manifest],
        sourced: list[Manifest] | None = None,
    ) -> ApplyOptions:
        """Returns the options of the apply: sources are read before the change itself, which waits
        for nothing. sourced: manifests whose sources are read; default all.
        """
        sourced = manifests if sourced is None else sourced
        state = self._state
        sources = self._state.sources
        looked: Mapping[str, SourceState] = {}
        if sources is not None:
            looked = await sources.look(sourced)
            copies = bool(looked) or any(files_of(it.spec) for it in sourced)
            if copies and not request.get("dryRun"):
                looked = await call_in_file_thread(sources.keep, sourced, looked)
        providers = with_declared(state.providers, select_providers(manifests))
        return replace(
            order_of(request),
            parallelism=parallelism_of(providers),
            looked=looked,
            sources=sources,
            gathers=True,
        )

    async def _changes(self, manifests: Sequence[Manifest], options: ApplyOptions) -> list[Change]:
        """Returns the changes at this moment: no other step of the loop comes between its last look
        at the store and its return. The verdicts of policies are computed in a thread.
        """
        state = self._state
        # One time for all looks: it is part of notes that policies read, as that of `rollout`.
        now_s = state.clock.now_s()
        kinds = {*state.tracks.asset_kinds, *(it.kind for it in manifests)}
        if POLICY not in kinds:
            return propose.propose_changes(state.store, manifests, options, now_s)
        for _ in range(PROPOSALS_MAX):
            with evaluation.put_off() as questions:
                changes = propose.propose_changes(state.store, manifests, options, now_s)
            if not questions:
                return changes
            await asyncio.to_thread(evaluation.look_up, tuple(questions.values()))
        raise Unavailable("the objects of policies change faster than they can be checked")

    async def _forecast_costs(
        self,
        request: Request,
        manifests: Sequence[Manifest],
        options: ApplyOptions,
        values: Mapping[str, str],
    ) -> tuple[Mapping[str, CostForecast], list[str]]:
        """Returns forecasts of costs, and warnings; plain work of this machine needs neither.

        Raises ManifestErrors for manifests that are certain to be refused, or to wait for an object
        that the user did not allow to be missing.
        """
        providers = with_declared(self._state.providers, select_providers(manifests))
        forecaster = self._forecaster
        if not may_cost(manifests, providers, self._market.declared):
            forecaster = None
        looked = options.looked
        looked_at = [it for it in manifests if is_worth_a_look(it.spec, looked.get(it.key))]
        if forecaster is None and not looked_at:
            return {}, []
        changes = await self._changes(manifests, options)
        forecasts = {} if forecaster is None else await asyncio.to_thread(forecaster, changes)
        found = await self._predict(looked_at, changes, values, looked)
        anyway = ANYWAY if request.get("verb") == "apply" else ""
        wrong, warnings = split_predictions(found, read_allowed(request), anyway)
        if wrong:
            refuse_problems([*wrong, *problems_of(changes, manifests)], manifests)
        return forecasts, warnings

    async def _carry_out(
        self,
        request: Request,
        manifests: list[Manifest],
        values: Mapping[str, str],
        options: ApplyOptions,
        forecasts: Mapping[str, CostForecast],
        trace: ApplyTrace | None,
    ) -> list[Change]:
        """Stores the objects of the request, unless it is a dry run; only then the values of
        secrets are taken over. Proposed again: the store may have changed during the forecast and
        the predictions. Raises NeedsConsent and PolicyDenied.
        """
        state = self._state
        now_s = state.clock.now_s()
        costs = {key: found.estimate for key, found in forecasts.items()}
        changes = await self._changes(manifests, replace(options, costs=costs))
        if forecasts or any(ESTIMATE in it.after.annotations for it in changes):
            changes = note_estimates(changes, forecasts)
        actor = actor_in(request)
        refuse_changes_beyond(actor, changes)
        refuse_denied(changes, manifests)
        check_expected(request, state.store, changes)
        if not request.get("override"):
            named = {it.key for it in manifests}
            taken = [it for it in changes if it.outcome == CONFIGURED and it.key in named]
            if taken:
                refuse_kept(it.before for it in taken if it.before is not None)
        if request.get("dryRun"):
            return changes
        if not request.get("yes"):
            consent.check_consent(changes, approved_in(request), now_s)
        changes = with_author(author_in(request), changes)
        if trace is not None:
            changes = with_trace(trace.context.header, changes, now_s)
        self._secrets.learn(values)
        store_changes(state.store, changes, now_s)
        moved = [(it.before, it.after) for it in changes if it.outcome != UNCHANGED]
        if trace is not None:
            self._traces.record_apply(trace, str(request.get("verb")), moved)
        for change in changes:
            state.poke(change.after.uid)
            nudge_object(state, change.after.uid)
        for kind, reason in _AWAITED.items():
            if any(manifest.kind == kind for manifest in manifests):
                nudge_starts(state, reason)
        return changes

    def _list_losses(self, request: Request, changes: Sequence[Change]) -> Reply:
        """Returns the losses that the apply itself would ask about first."""
        try:
            consent.check_consent(changes, approved_in(request), self._state.clock.now_s())
        except consent.NeedsConsent as error:
            return {"losses": list(error.losses), "hint": error.hint}
        return {}

    async def _predict(
        self,
        looked_at: Sequence[Manifest],
        changes: Sequence[Change],
        values: Mapping[str, str],
        looked: Mapping[str, SourceState],
    ) -> list[Prediction]:
        if not looked_at:
            return []
        state = self._state
        # pruned objects cause no prediction
        changes = [it for it in changes if it.outcome != PRUNED]
        world = world_of(
            state.store,
            changes,
            state.providers,
            self._market.declared,
            lambda name: values.get(name) or self._secrets.value(name),
            starts_here=True,
            looked=looked,
            bars=self._secrets.bars,
        )
        return await make_predictions(looked_at, changes, world)

    def _unknown_variables(self, manifests: Sequence[Manifest]) -> Iterator[str]:
        """Yields the variables of stored Secrets that these manifests name: a controller that began
        in another shell does not have them.
        """
        for manifest in manifests:
            work = work_in(manifest.spec)
            template = getattr(work, "template", None)
            rules = getattr(work, "notify", ())
            told = [name for _, _, name in secrets_in(rules)] if rules else []
            for name in (*(template.secrets if template is not None else ()), *told):
                stored = self._state.store.resources.get("Secret", name, manifest.namespace)
                if stored is not None:
                    spec = SecretSpec.model_validate_json(stored.spec)
                    yield from self._secrets.missing(spec.from_env)


def _reads_quickly(request: Request) -> bool:
    """Returns True for documents that name no files and take the loop less time than the beginning
    of a thread for them.
    """
    size = sum(len(document_of(it).text) for it in list_in(request, "documents"))
    return bool(request.get("withoutFiles")) and size <= QUICK_CHARS_MAX


def _list_variables(spec: Spec) -> tuple[str, ...]:
    """Returns the variables in the user's shell that a Secret or an account has its values from."""
    if isinstance(spec, SecretSpec):
        return spec.from_env
    if isinstance(spec, ProviderSpec):
        return spec.variables
    return ()
