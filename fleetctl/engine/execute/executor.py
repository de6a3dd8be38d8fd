"""Carries out provider calls for the desired state in the store. Level-triggered: looks at the live
runs, not at events.

STARTING and no call under way -> start; STOPPING -> stop. Each call has a rate limiter and a
deadline and ends in a message.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.planning.plan import (
    AssetAction,
    CloseSandbox,
    EnsureFunction,
    EnsureVolume,
    FreeScratch,
    RemoveFunction,
    RemoveVolume,
)
from fleetctl.controllers.wandb import observe_template
from fleetctl.engine.execute import start_specs
from fleetctl.engine.execute.asset_calls import carry_out
from fleetctl.engine.execute.rate_limit import RateLimiter
from fleetctl.engine.execute.secrets import ResolvedSecrets, with_login
from fleetctl.engine.execute.start_specs import stage_variables
from fleetctl.engine.shared.boundary import NoAnswer, guard_call
from fleetctl.engine.shared.messages import (
    AssetReplied,
    Message,
    StartRefused,
    StartReplied,
    StartUnknown,
    StartWaits,
    StopReplied,
)
from fleetctl.engine.shared.part import EngineParts, ProviderCall
from fleetctl.providers.contract.base import (
    FunctionRequest,
    InputFile,
    MountedFile,
    RunRef,
    RunRequest,
    ref_of,
)
from fleetctl.providers.contract.terms import BRING_HINT, Contract
from fleetctl.providers.sources.pinning import commit_variables
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.content import combined_hash
from fleetctl.specs.values.hints import NO_TEXT, HintedText, hinted_error
from fleetctl.tracking.track import ResourceWork, RunCalls, Track

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState

log = logging.getLogger("fleetctl.engine")

ROOM_LOOK_S = 1.0  # while a lowered limit is exceeded, which is rare and short
AFTER_RESTORE = "AfterRestore"  # why a start waits then
AGAIN_S_MAX = 60.0  # between two requests to a provider that does not reply after a restore


class PlanExecutor:
    """rate limiters: by provider. exceeded: more is held there than there may be. secrets: finds
    values. join: gives a start what its program finds its endpoints by. parts: add variables to a
    program, and take note of calls.
    """

    def __init__(
        self,
        state: EngineState,
        *,
        rate_limiters: Mapping[str, RateLimiter],
        exceeded: Callable[[str], bool],
        secrets: Callable[[tuple[str, ...], str], ResolvedSecrets],
        join: Callable[[ResourceWork, RunRequest], Awaitable[RunRequest]],
        parts: EngineParts,
    ) -> None:
        self._state = state
        self._parts = parts
        self._rate_limiters = rate_limiters
        self._exceeded = exceeded
        self._secrets, self._join = secrets, join
        self._tasks: dict[
            str, asyncio.Task[None]
        ] = {}  # by run or sandbox name, or by uid for assets

    def drive(self, track: Track, now_s: float) -> None:
        """Begins every call that this resource needs now."""
        work = track.work
        if work is not None:
            self._drive_runs(work, now_s)
        for action in track.asset_actions:
            if not isinstance(action, CloseSandbox):
                self._drive_asset(track, action, now_s)
            elif work is not None:
                self._drive_close(work, action, now_s)

    def _drive_runs(self, work: ResourceWork, now_s: float) -> None:
        above = self._is_above_parallelism(work)
        for run in work.history.live.values():
            if run.state is RunState.STARTING:
                if above:
                    continue  # after a scale-down, until enough is confirmed gone
                call = work.track.calls.get(run.name)
                if call is not None and call.busy:
                    continue  # its reply brings the next look
                if self._makes_too_many(run):
                    # Another object's stop frees the capacity, and does not wake this one.
                    self._state.queue.add(work.resource.uid, now_s + ROOM_LOOK_S)
                    continue
                self._drive_start(work, run, now_s)
            elif run.state is RunState.STOPPING:
                self._drive_stop(work, run, now_s)

    def _is_above_parallelism(self, work: ResourceWork) -> bool:
        """Returns true if more runs are live than the present spec allows."""
        allowed = work.controller.policy.parallelism
        return allowed is not None and len(work.history.live) > allowed

    def _makes_too_many(self, run: Run) -> bool:
        """Returns true if it would make a sandbox where a lowered limit is still exceeded."""
        makes = run.sandbox == run.name and not run.handle
        return makes and self._exceeded(run.provider)

    def _is_above_a_limit(self, run: Run) -> bool:
        """Returns true if a limit was lowered while the start waited for its turn."""
        track = self._state.tracks.get(run.uid)
        work = track.work if track is not None else None
        above = work is not None and self._is_above_parallelism(work)
        return above or self._makes_too_many(run)

    def drop(self, key: str) -> None:
        """Cancels the call of a run here; the provider may still carry it out, unheeded."""
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    def drop_all(self) -> None:
        """Cancels every call here; the providers may still carry them out, unheeded."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    async def cancel_all(self) -> None:
        """Cancels every call; a sandbox that they began is found again under its name."""
        await cancel_tasks(self._tasks.values())

    # -- runs --------------------------------------------------------------------------------------

    def _drive_start(
        self,
        work: ResourceWork,
        run: Run,
        now_s: float,
    ) -> None:
        call = work.track.calls.setdefault(run.name, RunCalls())
        if self._must_wait(work, call, run.provider, now_s):
            return
        if self._state.holds_starts(run.provider):
            self._hold(run)
            return
        call.busy = "start"
        call.asked_at_s = now_s
        if call.nothing_made:
            call.held_from_s = now_s  # the first that may make its sandbox
        cancelled = StartUnknown(run.name, "the start was cancelled")
        self._spawn(run.name, self._start(work, run), cancelled)

    def _hold(self, run: Run) -> None:
        """Delays a start until the sandboxes that the provider began since the backup are known."""
        message = (
            f"the store was put back from a backup, and {run.provider} is asked first what began"
            f" since; it is asked again within {AGAIN_S_MAX:.0f} s while it does not answer"
        )
        wait = StartWaits(run.name, AFTER_RESTORE, message, ROOM_LOOK_S)
        self._state.inbox.tell(wait)

    def _drive_stop(
        self,
        work: ResourceWork,
        run: Run,
        now_s: float,
    ) -> None:
        call = work.track.calls.setdefault(
            run.name, RunCalls(appeared_at_s=self._state.started_at_s)
        )
        if call.busy == "start":
            # Its outcome is unknown now; the stop goes by name and the bound is waited out.
            # A call that has just ended has its message in the inbox, and the stop follows that.
            if run.name in self._tasks:
                self._tasks[run.name].cancel()
            return
        if self._must_wait(work, call, run.provider, now_s):
            return
        self._spawn_stop(work, call, run)

    def _drive_close(
        self,
        work: ResourceWork,
        action: CloseSandbox,
        now_s: float,
    ) -> None:
        box = work.history.sandboxes.get(action.sandbox)
        if box is None or box.busy:
            return
        call = work.track.calls.setdefault(box.last.name, RunCalls())
        if self._must_wait(work, call, box.provider, now_s):
            return
        self._spawn_stop(work, call, box.last)

    def _spawn_stop(
        self,
        work: ResourceWork,
        call: RunCalls,
        run: Run,
    ) -> None:
        call.busy = "stop"
        stopping = self._stop(run.provider, ref_of(run), work.controller.policy.grace_s)
        self._spawn(run.name, stopping, StopReplied(run.name, HintedText("cancelled")))

    def _is_too_early(
        self,
        track: Track,
        retry_at_s: float,
        now_s: float,
    ) -> bool:
        """Returns True when it is too early to call; the resource is looked at again when it is
        time.

        Scheduled again in every tick, because an earlier look at the resource takes it off the
        queue.
        """
        if now_s >= retry_at_s:
            return False
        self._state.queue.add(track.resource.uid, retry_at_s)
        return True

    def _must_wait(
        self,
        work: ResourceWork,
        call: RunCalls,
        provider: str,
        now_s: float,
    ) -> bool:
        """Returns true if a call is under way, it is too early for the next, or the provider is
        unknown.
        """
        if call.busy or self._is_too_early(work.track, call.retry_at_s, now_s):
            return True
        return provider not in self._state.providers

    async def _start(self, work: ResourceWork, run: Run) -> None:
        tell = self._state.inbox.tell
        try:
            order = self._build_request(work, run)
            if order.template.asks:
                order = await self._join(work, order)
            handle = await guard_call(self._start_call(run, order), what="start", key=run.name)
            if isinstance(handle, NoAnswer):
                tell(StartUnknown(run.name, handle.why))
            else:
                two_phase = self._state.providers[run.provider].contract.two_phase
                tell(StartReplied(run.name, handle, begun=not two_phase or bool(order.handle)))
        except Refused as error:
            why = hinted_error(error)
            tell(StartRefused(run.name, why.text, why.hint))
        except Unavailable as error:
            why = hinted_error(error)
            tell(
                StartWaits(
                    run.name,
                    error.reason,
                    why.text,
                    error.retry_after_s,
                    account=error.account,
                    perhaps_made=error.perhaps_made,
                    hint=why.hint,
                )
            )

    async def _start_call(self, run: Run, request: RunRequest) -> str | NoAnswer:
        async def start() -> str | NoAnswer:
            # The rate limiter may have held it for long: an ended run's sandbox must not be made
            # again.
            if not self._is_desired(run):
                return NoAnswer("this start is not wanted any more")
            if self._is_above_a_limit(run):
                message = "a limit was lowered, and what is above it is being ended"
                raise Unavailable(message, reason="Crowded", retry_after_s=ROOM_LOOK_S)
            what = "begin" if request.handle else "create"
            with self._report_call(ref_of(run), run.provider, what):
                return await self._state.providers[run.provider].start(request)

        creates = request.sandbox == request.run and not request.handle
        return await self._rate_limiters[run.provider].start(start, creates=creates)

    def _is_desired(self, run: Run) -> bool:
        track = self._state.tracks.get(run.uid)
        if track is None or track.work is None:
            return track is not None and not track.dormant  # its rows are yet to be read back
        known = track.work.history.live.get(run.name)
        return known is not None and known.state is not RunState.STOPPING

    async def _stop(
        self,
        provider: str,
        ref: RunRef,
        grace_s: float,
    ) -> None:
        async def stop() -> None:
            with self._report_call(ref, provider, "stop"):
                await self._state.providers[provider].stop(ref, grace_s=grace_s)

        message = NO_TEXT
        try:
            reply = await guard_call(
                self._rate_limiters[provider].ask(stop), what="stop", key=ref.run
            )
            message = HintedText(reply.why if isinstance(reply, NoAnswer) else "")
        except (Refused, Unavailable) as error:
            message = hinted_error(error)
        self._state.inbox.tell(StopReplied(ref.run, message))

    @contextmanager
    def _report_call(
        self,
        ref: RunRef,
        provider: str,
        what: str,
    ) -> Iterator[None]:
        """Reports a call to the parts as it ends, in whatever way."""
        clock = self._state.clock
        began_at_s = clock.now_s()
        problem = "Cancelled"
        try:
            yield
            problem = ""
        except FleetctlError as error:
            problem = error.reason if isinstance(error, Unavailable) else type(error).__name__
            raise
        finally:
            call = ProviderCall(
                ref.uid,
                ref.run,
                provider,
                what,
                began_at_s,
                clock.now_s(),
                problem,
            )
            for part in self._parts.awake("call_ended"):
                part.call_ended(call)

    def _build_request(self, work: ResourceWork, run: Run) -> RunRequest:
        """Returns the complete request for the provider; secrets are resolved here and not
        stored.
        """
        state = self._state
        controller = work.controller
        policy = controller.policy
        name, namespace = work.resource.name, work.resource.namespace

        own = controller.template_now(work.history, run.index)
        own = start_specs.pin_source(state, own, work.resource)
        whole, function = start_specs.resolve_template(state, own, namespace)
        template = start_specs.qualify_volumes(whole, namespace)
        template = with_login(template, self._secrets, namespace)

        contract = state.providers[run.provider].contract
        _refuse_unsupported(contract, run.provider, template, function)
        files = self._files(work, run, whole)
        _refuse_large_files(contract, run.provider, template, files)

        box = work.history.sandboxes.get(run.sandbox)
        used = box.used if box is not None else 1
        handle = run.handle
        if not handle and box is not None and run.sandbox != run.name:
            handle = box.last.handle
        secrets = ResolvedSecrets()
        if template.secrets:
            secrets = self._secrets(template.secrets, namespace)
        # A program of ours has its parameters as variables.
        wandb = controller.wandb(name, run.index) if template.python is None else None
        return RunRequest(
            run=run.name,
            sandbox=run.sandbox,
            owner=state.store.store_id,
            uid=run.uid,
            resource=work.resource.key,
            index=run.index,
            attempt=run.attempt,
            template=observe_template(template, wandb),
            template_hash=_hash_template(run, whole),
            params=json.loads(run.params),
            reusable=policy.reuse is None or used < policy.reuse,
            secrets=secrets.beside(template.env),
            secret_refs=secrets.refs_at(run.provider, guards_secrets=contract.guards_secrets),
            handle=handle,
            function=function,
            wandb=wandb,
            metric=controller.metric,
            variables={
                **commit_variables(template, secrets.values),
                **stage_variables(work, state.store.runs, run.index),
                **self._parts.list_variables(work, run),
            },
            checkpoint=controller.checkpoint(work.history, run.index),
            progress=controller.progress(run.index),
            groups=controller.groups(run.index),
            labels=work.resource.labels,
            files=files,
        )

    def _files(
        self,
        work: ResourceWork,
        run: Run,
        template: Template,
    ) -> tuple[InputFile | MountedFile, ...]:
        """Returns the files of a task of `fromFiles`. template: with the volumes of its Function.
        Raises Refused and Unavailable.
        """
        sources = self._state.sources
        if sources is None or not work.controller.has_files:
            return ()
        return sources.inputs.of_run(json.loads(run.params), template)

    # -- assets ------------------------------------------------------------------------------------

    def _drive_asset(
        self,
        track: Track,
        action: AssetAction,
        now_s: float,
    ) -> None:
        if track.asset.busy or self._is_too_early(track, track.asset.retry_at_s, now_s):
            return
        track.asset.busy = True
        why = HintedText("cancelled")
        cancelled = AssetReplied(track.resource.uid, _WORDS[type(action)], why)
        self._spawn(track.resource.uid, self._asset(track, action), cancelled)

    async def _asset(self, track: Track, action: AssetAction) -> None:
        uid = track.resource.uid
        generation = track.resource.generation
        what = _WORDS[type(action)]
        if isinstance(action, FreeScratch) and not action.keep_logs:
            what = "swept"
        message = NO_TEXT
        address = None
        try:
            reply = await guard_call(
                carry_out(
                    self._state,
                    self._rate_limiters,
                    track,
                    action,
                    self._secrets,
                ),
                what=what,
                key=uid,
            )
            if isinstance(reply, NoAnswer):
                message = HintedText(reply.why)
            else:
                address = reply
        except (Refused, Unavailable) as error:
            message = hinted_error(error)
        self._state.inbox.tell(
            AssetReplied(
                uid,
                what,
                message,
                address,
                generation,
            )
        )

    def _spawn(
        self,
        key: str,
        call: Coroutine[object, object, None],
        unknown: Message,
    ) -> None:
        """Starts a call as a task of the loop. unknown: the message to send when the call ends
        without its own, even before its first step.
        """
        task = asyncio.ensure_future(call)
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._ended(key, done, unknown))

    def _ended(
        self,
        key: str,
        done: asyncio.Task[None],
        unknown: Message,
    ) -> None:
        if self._tasks.get(key) is not done:
            return
        del self._tasks[key]
        if done.cancelled():
            self._state.inbox.tell(unknown)
        elif done.exception() is not None:
            log.error("call failed", exc_info=done.exception(), extra={"key": key})
            self._state.inbox.tell(unknown)


_WORDS: dict[type, str] = {
    EnsureVolume: "ensured",
    RemoveVolume: "removed",
    EnsureFunction: "ensured",
    RemoveFunction: "removed",
    FreeScratch: "freed",
}


def _refuse_unsupported(
    contract: Contract,
    provider: str,
    template: Template,
    function: FunctionRequest | None,
) -> None:
    """Raises Refused where the provider can run no such template."""
    if function is not None and not contract.functions:
        raise Refused(
            f"provider `{provider}` has no functions",
            hint="use `runtime: sandbox`, or place it on one that has",
        )
    if why := contract.cannot_join(provider, template):
        raise Refused(why, hint=contract.joins_hint(template))


def _refuse_large_files(
    contract: Contract,
    provider: str,
    template: Template,
    files: Iterable[InputFile | MountedFile],
) -> None:
    """Raises Refused where the provider cannot take that many bytes of files of this machine."""
    size = sum(it.bytes for it in files if isinstance(it, InputFile))
    if why := contract.cannot_bring(provider, size, template):
        raise Refused(why, hint=BRING_HINT)


def _hash_template(run: Run, template: Template) -> str:
    """Hashes the template again: a Function may have changed since the run's own was hashed."""
    if template.function:
        return combined_hash(run.template_hash, template)
    return run.template_hash
