"""Manages all W&B agents: one for each sweep that exists and has not finished. Called by passes,
which send their requests and receive W&B's last report; between them each agent goes on at its own
pace.

The key is resolved again for each tick of an agent, and not stored.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from fleetctl.common.errors import FleetctlError, NotFound, Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks, wait_or_wake
from fleetctl.controllers.wandb import names_of
from fleetctl.engine.execute.secrets import ResolvedSecrets
from fleetctl.engine.kinds.wandb.sweep_link import read_link
from fleetctl.engine.kinds.wandb.wandb_agent import AgentGoal, WandbAgent
from fleetctl.engine.shared.boundary import NoAnswer, guard_call
from fleetctl.engine.shared.part import EnginePart, PartWiring, WorkDecision
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.values.hints import hinted_error
from fleetctl.wandb.calls import GraphqlCall, WandbConnect

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import ResourceWork, Track

KEY = "WANDB_API_KEY"
KEY_HINT = (
    "a `kind: Secret` with `fromEnv: [WANDB_API_KEY]`, named in `template.secrets`, gives it to the"
    " controller and to the trials"
)
RESTING = 12  # heartbeats between two turns of a suspended one
GAP_S = 0.2  # between two turns at least, for any request of passes
CLOSE_TRIES = 3  # of a deleted object: then it goes, and the sweep stays as it is at W&B
Secrets = Callable[[tuple[str, ...], str], ResolvedSecrets]


class WandbAgents(EnginePart):
    """connect: None = this engine does not connect to W&B. beat_s: between two heartbeats of an
    agent.
    """

    works_for = frozenset({"Sweep"})

    def __init__(
        self,
        state: EngineState,
        *,
        connect: WandbConnect | None,
        secrets: Secrets,
        beat_s: float,
    ) -> None:
        self._state, self._connect, self._secrets = state, connect, secrets
        self._beat_s = beat_s
        self._host = f"fleetctl-{socket.gethostname()}"
        self._talks: dict[str, WandbAgent] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._woken: dict[str, asyncio.Event] = {}

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(
            wiring.state,
            connect=wiring.services.wandb,
            secrets=wiring.secrets,
            beat_s=wiring.state.settings.wandb_beat_s,
        )

    def list_inputs(self, work: ResourceWork, _now_s: float) -> Mapping[str, Any]:
        return {"before_removal": self.describe_left_work(work)}

    def take_decision(self, decision: WorkDecision) -> None:
        work = decision.work
        handed = decision.desired.controller.handed
        if handed is None:
            return
        free = handed.room(work.history, most=decision.most_units)
        self.request_runs(work, slots=0 if decision.next_unit is None else free)

    def begin_work(self, work: ResourceWork) -> None:
        """Passes W&B's report to its controller; the first call starts the agent."""
        handed = work.controller.handed
        uid = work.resource.uid
        if handed is None:
            return
        talk = self._talks.get(uid)
        if talk is None:
            talk = self._talks[uid] = WandbAgent(self._state, uid, self._host)
        if uid not in self._tasks and not talk.closed:
            self._woken[uid] = asyncio.Event()
            self._tasks[uid] = asyncio.ensure_future(self._run_agent(uid, talk))
        if uid in self._state.hurried:
            self._state.hurried.discard(uid)
            self._woken[uid].set()
        ties = read_link(work.resource)
        handed.hear(replace(talk.report, home=ties.home, handed=ties.handed))

    def request_runs(self, work: ResourceWork, *, slots: int) -> None:
        """Records the request of a pass: the number of runs that could begin at once."""
        talk = self._talks.get(work.resource.uid)
        if talk is None:
            return
        deleted = work.resource.deleted_at_s is not None
        wanted = AgentGoal(slots, work.controller.policy.suspend, deleted)
        more = wanted.slots > talk.wanted.slots or wanted.deleted != talk.wanted.deleted
        if (more or wanted.suspended != talk.wanted.suspended) and talk.report.trouble is None:
            self._woken[work.resource.uid].set()
        talk.wanted = wanted

    def describe_left_work(self, work: ResourceWork) -> str:
        """Returns the work left at W&B for a deleted object, as a sentence; or ""."""
        if work.resource.deleted_at_s is None or work.controller.handed is None:
            return ""
        talk = self._talks.get(work.resource.uid)
        if read_link(work.resource).is_nothing or (talk is not None and talk.closed):
            return ""
        trouble = talk.report.trouble if talk is not None else None
        return "its sweep is being ended at W&B" + (f": {trouble[1].text}" if trouble else "")

    async def close(self) -> None:
        await cancel_tasks(self._tasks.values())

    async def _run_agent(self, uid: str, talk: WandbAgent) -> None:
        tries = 0
        try:
            while (track := self._track(uid)) is not None and not talk.closed:
                if not isinstance(track.spec, SweepSpec):
                    await self._rest(uid, talk, None, 0)  # a pass is to read it
                    continue
                trouble = await self._turn(track, talk)
                tries = 0 if trouble is None else tries + 1
                if talk.wanted.deleted and trouble is not None and tries >= CLOSE_TRIES:
                    text = f"its sweep at W&B is left as it is: {trouble}"
                    self._state.say(uid, "WandbLeft", text, kind="Warning")
                    talk.close()
                await self._rest(uid, talk, trouble, tries)
        finally:
            del self._tasks[uid]
            if self._track(uid) is None:
                self._talks.pop(uid, None)

    def _track(self, uid: str) -> Track | None:
        """Returns None once it has finished or is gone."""
        track = self._state.tracks.get(uid)
        if track is None or track.dormant:
            return None
        return track

    async def _turn(self, track: Track, talk: WandbAgent) -> FleetctlError | None:
        """Returns the error of a turn, which passes report to users."""
        uid = track.resource.uid
        spec = track.spec
        assert isinstance(spec, SweepSpec)
        trouble: FleetctlError | None = None
        try:
            ask = self._ask(spec, track.resource.namespace)
            answer = await guard_call(_take_turn(talk, spec, ask), what="talk", key=uid)
            if isinstance(answer, NoAnswer):
                trouble = Unavailable(f"W&B: {answer.why}", reason="Unreachable")
        except FleetctlError as error:
            trouble = error
        news = None
        if trouble is not None:
            news = getattr(trouble, "reason", "Refused"), hinted_error(trouble)
        if news != talk.report.trouble:
            talk.report = replace(talk.report, trouble=news)
            self._state.poke(uid)
        return trouble

    async def _rest(
        self,
        uid: str,
        talk: WandbAgent,
        trouble: FleetctlError | None,
        tries: int,
    ) -> None:
        """Waits until the next heartbeat, or until a pass has another request."""
        span_s = self._beat_s
        if trouble is not None:
            asked_s = getattr(trouble, "retry_after_s", 0.0)
            span_s = max(asked_s, self._state.backoff_s(tries))
        elif talk.wanted.suspended and talk.report.state:
            span_s *= RESTING
        await asyncio.sleep(min(GAP_S, span_s))
        wake = self._woken[uid]
        await wait_or_wake(wake, span_s)
        wake.clear()

    def _ask(self, spec: SweepSpec, namespace: str) -> GraphqlCall:
        """Connects to W&B with the key from the Secrets of a sweep. Raises Unavailable where no
        Secret has the key.
        """
        names = spec.template.secrets if spec.template is not None else ()
        found = self._secrets(names, namespace) if names else ResolvedSecrets()
        key = found.values.get(KEY)
        if not key:
            raise Unavailable(
                f"no Secret of its template gives {KEY}", reason="KeyMissing", hint=KEY_HINT
            )
        if self._connect is None:
            raise Unavailable("this engine does not talk to W&B", reason="Unavailable")
        return self._connect(names_of(spec)[2], key)


async def _take_turn(
    talk: WandbAgent,
    spec: SweepSpec,
    ask: GraphqlCall,
) -> None:
    """Runs a turn. An entity that W&B does not find is retried like a refusal."""
    try:
        await talk.turn(spec, ask)
    except NotFound as error:
        raise Refused(str(error), hint=error.hint) from error
