"""Carry-out: provider calls for what the store says is wished. Level-triggered: looks at the live
runs, not at events.

STARTING and no call under way -> start; STOPPING -> stop. Each call has a gate and a deadline and
ends in a fact.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING

from controllers.model import Run, RunState
from controllers.plan import CloseSandbox, EnsureVolume, FreeScratch, RemoveVolume
from fleetctl.engine.facts import (
    AssetReplied,
    Fact,
    StartRefused,
    StartReplied,
    StartUnknown,
    StartWaits,
    StopReplied,
)
from fleetctl.engine.gate import Gate
from fleetctl.engine.guard import NoAnswer
from fleetctl.engine.track import Call, Track
from fleetctl.errors import Refused, Unavailable
from fleetctl.providers.base import RunOrder, RunRef

if TYPE_CHECKING:
    from fleetctl.engine.loop import Engine


class Effects:
    def __init__(
        self, engine: Engine, secrets: Callable[[tuple[str, ...]], Mapping[str, str]]
    ) -> None:
        self._engine = engine
        self._secrets = secrets
        self._tasks: dict[
            str, asyncio.Task[None]
        ] = {}  # by run or sandbox name, or by uid for assets
        self.gates = {
            name: Gate(provider.contract, engine.clock)
            for name, provider in engine.providers.items()
        }

    def backoff_s(self, tries: int) -> float:
        """Doubles per try up to retry_max_s, times a jitter in [0.5, 1.5)."""
        settings = self._engine.settings
        base_s = min(settings.retry_initial_s * 2.0 ** min(tries - 1, 32), settings.retry_max_s)
        return base_s * (0.5 + self._engine.random.random())

    def drive(self, track: Track, now_s: float) -> None:
        """Begin every call that this resource needs now."""
        if track.history is not None:
            for run in track.history.live.values():
                if run.state is RunState.STARTING:
                    self._drive_start(track, run, now_s)
                elif run.state is RunState.STOPPING:
                    self._drive_stop(track, run, now_s)
        for action in track.asset_actions:
            if isinstance(action, CloseSandbox):
                self._drive_close(track, action, now_s)
            else:
                self._drive_asset(track, action, now_s)

    async def cancel_all(self) -> None:
        """Leave every call where it is; what they began is found again under its name."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- runs --------------------------------------------------------------------------------------

    def _drive_start(self, track: Track, run: Run, now_s: float) -> None:
        call = track.calls.setdefault(run.name, Call())
        if call.busy or self._later(track, call.retry_at_s, now_s) or self._unknown(run.provider):
            return
        call.busy = "start"
        cancelled = StartUnknown(run.name, "the start was cancelled")
        self._spawn(run.name, self._start(track, run), cancelled)

    def _drive_stop(self, track: Track, run: Run, now_s: float) -> None:
        call = track.calls.setdefault(run.name, Call(appeared_at_s=self._engine.started_at_s))
        if call.busy == "start":
            # Its outcome is unknown now; the stop goes by name and the bound is waited out.
            # A call that has just ended has its fact in the inbox, and the stop follows that.
            if run.name in self._tasks:
                self._tasks[run.name].cancel()
            return
        if call.busy or self._later(track, call.retry_at_s, now_s) or self._unknown(run.provider):
            return
        call.busy = "stop"
        cancelled = StopReplied(run.name, "cancelled")
        self._spawn(run.name, self._stop(track, run.name, _ref(run)), cancelled)

    def _drive_close(self, track: Track, action: CloseSandbox, now_s: float) -> None:
        assert track.history is not None
        box = track.history.sandboxes.get(action.sandbox)
        if box is None or box.busy:
            return
        call = track.calls.setdefault(box.last.name, Call())
        if call.busy or self._later(track, call.retry_at_s, now_s) or self._unknown(box.provider):
            return
        call.busy = "stop"
        cancelled = StopReplied(box.last.name, "cancelled")
        self._spawn(box.last.name, self._stop(track, box.last.name, _ref(box.last)), cancelled)

    def _later(self, track: Track, retry_at_s: float, now_s: float) -> bool:
        """True when it is too early to call; the resource is looked at again when it is time.

        Said anew in every turn, because an earlier look at the resource takes it off the queue.
        """
        if now_s >= retry_at_s:
            return False
        self._engine.queue.add(track.resource.uid, retry_at_s)
        return True

    def _unknown(self, provider: str) -> bool:
        return provider not in self._engine.providers

    async def _start(self, track: Track, run: Run) -> None:
        engine = self._engine
        tell = engine.tell
        gate = self.gates[run.provider]
        try:
            order = self._order(track, run)
            call = gate.ask(partial(engine.providers[run.provider].start, order))
            handle = await engine.guarded(call, what="start", key=run.name)
            tell(
                StartUnknown(run.name, handle.why)
                if isinstance(handle, NoAnswer)
                else StartReplied(run.name, handle)
            )
        except Refused as error:
            tell(StartRefused(run.name, _with_hint(error)))
        except Unavailable as error:
            now_s = engine.clock.now_s()
            known = track.calls.setdefault(run.name, Call())
            known.tries += 1
            delay_s = max(error.retry_after_s, self.backoff_s(known.tries))
            if error.reason == "RateLimited":
                gate.hold_until(now_s + error.retry_after_s)
            tell(StartWaits(run.name, error.reason, _with_hint(error), now_s + delay_s))

    async def _stop(self, track: Track, name: str, ref: RunRef) -> None:
        engine = self._engine
        assert track.controller is not None
        provider = self._provider_of(track, ref)
        grace_s = track.controller.policy.grace_s
        message = ""
        try:
            call = self.gates[provider].ask(
                partial(engine.providers[provider].stop, ref, grace_s=grace_s)
            )
            reply = await engine.guarded(call, what="stop", key=name)
            message = reply.why if isinstance(reply, NoAnswer) else ""
        except (Refused, Unavailable) as error:
            message = _with_hint(error)
        engine.tell(StopReplied(name, message))

    def _order(self, track: Track, run: Run) -> RunOrder:
        """Everything that the provider needs; secrets are resolved here and kept nowhere."""
        controller = track.controller
        assert controller is not None
        template = controller.template(run.index)
        policy = controller.policy
        box = track.history.sandboxes.get(run.sandbox) if track.history else None
        used = box.used if box else 1
        return RunOrder(
            run=run.name,
            sandbox=run.sandbox,
            owner=self._engine.store.store_id,
            uid=run.uid,
            resource=track.resource.key,
            index=run.index,
            attempt=run.attempt,
            template=template,
            template_hash=run.template_hash,
            params=json.loads(run.params),
            reusable=policy.reuse is None or used < policy.reuse,
            secrets=self._secrets(template.secrets) if template.secrets else {},
            stop_grace_s=policy.grace_s,
        )

    def _provider_of(self, track: Track, ref: RunRef) -> str:
        assert track.history is not None
        run = track.history.live.get(ref.run)
        return run.provider if run is not None else track.history.sandboxes[ref.sandbox].provider

    # -- assets ------------------------------------------------------------------------------------

    def _drive_asset(
        self, track: Track, action: EnsureVolume | RemoveVolume | FreeScratch, now_s: float
    ) -> None:
        if track.asset.busy or self._later(track, track.asset.retry_at_s, now_s):
            return
        track.asset.busy = True
        cancelled = AssetReplied(track.resource.uid, _WORDS[type(action)], "cancelled")
        self._spawn(track.resource.uid, self._asset(track, action), cancelled)

    async def _asset(self, track: Track, action: EnsureVolume | RemoveVolume | FreeScratch) -> None:
        uid, engine = track.resource.uid, self._engine
        what = _WORDS[type(action)]
        if isinstance(action, FreeScratch) and not action.keep_logs:
            what = "swept"
        message = ""
        try:
            reply = await engine.guarded(self._asset_calls(uid, action), what=what, key=uid)
            message = reply.why if isinstance(reply, NoAnswer) else ""
        except (Refused, Unavailable) as error:
            message = _with_hint(error)
        engine.tell(AssetReplied(uid, what, message))

    async def _asset_calls(
        self, uid: str, action: EnsureVolume | RemoveVolume | FreeScratch
    ) -> None:
        providers = self._engine.providers
        if isinstance(action, FreeScratch):
            for name, each in providers.items():
                free = partial(each.remove_scratch, uid, keep_logs=action.keep_logs)
                await self.gates[name].ask(free)
            return
        if action.provider not in providers:
            raise Refused(f"provider `{action.provider}` is not built in")
        backend, gate = providers[action.provider], self.gates[action.provider]
        if isinstance(action, EnsureVolume):
            await gate.ask(partial(backend.ensure_volume, action.name))
        else:
            await gate.ask(partial(backend.remove_volume, action.name))

    def _spawn(self, key: str, work: Coroutine[object, object, None], cancelled: Fact) -> None:
        """cancelled: what is known when the call is cancelled, be it before its first step."""
        task = asyncio.ensure_future(work)
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._ended(key, done, cancelled))

    def _ended(self, key: str, done: asyncio.Task[None], cancelled: Fact) -> None:
        if self._tasks.get(key) is done:
            del self._tasks[key]
        if done.cancelled():
            self._engine.tell(cancelled)


_WORDS: dict[type, str] = {
    EnsureVolume: "ensured",
    RemoveVolume: "removed",
    FreeScratch: "freed",
}


def _ref(run: Run) -> RunRef:
    return RunRef(run.name, run.sandbox, run.handle, run.journal_offset, run.uid)


def _with_hint(error: Refused | Unavailable) -> str:
    return f"{error}; hint: {error.hint}" if error.hint else str(error)
