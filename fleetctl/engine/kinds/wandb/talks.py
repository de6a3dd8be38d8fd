"""All talks with W&B: one for each sweep that is there and is not over. Asked by passes, which tell
what they want and are told what W&B said last; between them each talk goes on at its own pace.

The key is found anew for each tick of a talk, and kept nowhere.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, NotFound, Refused, Unavailable
from fleetctl.common.tasks import cancel, woken
from fleetctl.controllers.wandb.handed import names_of
from fleetctl.engine.execute.secrets import Found
from fleetctl.engine.kinds.wandb.talk import Talk, Wanted
from fleetctl.engine.kinds.wandb.ties import ties_of
from fleetctl.engine.shared.boundary import NoAnswer, guarded
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.values.hints import words_of
from fleetctl.wandb.client import Ask, Connect

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State
    from fleetctl.tracking.track import Track, Work

KEY = "WANDB_API_KEY"
KEY_HINT = (
    "a `kind: Secret` with `fromEnv: [WANDB_API_KEY]`, named in `template.secrets`, gives it to the"
    " controller and to the trials"
)
RESTING = 12  # heartbeats between two turns of a suspended one
GAP_S = 0.2  # between two turns at least, whatever passes want
CLOSE_TRIES = 3  # of a deleted object: then it goes, and the sweep stays as it is at W&B
Secrets = Callable[[tuple[str, ...], str], Found]


class Talks:
    """connect: None = this engine talks to nobody. beat_s: between two heartbeats of an agent."""

    def __init__(
        self, state: State, *, connect: Connect | None, secrets: Secrets, beat_s: float
    ) -> None:
        self._state, self._connect, self._secrets = state, connect, secrets
        self._beat_s = beat_s
        self._host = f"fleetctl-{socket.gethostname()}"
        self._talks: dict[str, Talk] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._woken: dict[str, asyncio.Event] = {}

    def hear(self, work: Work) -> None:
        """Tell its controller what W&B said; the first time begins the talk."""
        handed, uid = work.controller.handed, work.resource.uid
        if handed is None:
            return
        talk = self._talks.get(uid)
        if talk is None:
            talk = self._talks[uid] = Talk(self._state, uid, self._host)
        if uid not in self._tasks and not talk.closed:
            self._woken[uid] = asyncio.Event()
            self._tasks[uid] = asyncio.ensure_future(self._go_on(uid, talk))
        if uid in self._state.hurried:
            self._state.hurried.discard(uid)
            self._woken[uid].set()
        ties = ties_of(work.resource)
        handed.hear(replace(talk.report, home=ties.home, handed=ties.handed))

    def want(self, work: Work, *, slots: int) -> None:
        """What a pass has found out: so many more runs could begin at once."""
        talk = self._talks.get(work.resource.uid)
        if talk is None:
            return
        deleted = work.resource.deleted_at_s is not None
        wanted = Wanted(slots, work.controller.policy.suspend, deleted)
        more = wanted.slots > talk.wanted.slots or wanted.deleted != talk.wanted.deleted
        if (more or wanted.suspended != talk.wanted.suspended) and talk.report.trouble is None:
            self._woken[work.resource.uid].set()
        talk.wanted = wanted

    def before_removal(self, work: Work) -> str:
        """Of a deleted object: what is left to do at W&B, as a sentence; or ""."""
        if work.resource.deleted_at_s is None or work.controller.handed is None:
            return ""
        talk = self._talks.get(work.resource.uid)
        if ties_of(work.resource).is_nothing or (talk is not None and talk.closed):
            return ""
        trouble = talk.report.trouble if talk is not None else None
        return "its sweep is being ended at W&B" + (f": {trouble[1]}" if trouble else "")

    async def close(self) -> None:
        await cancel(self._tasks.values())

    async def _go_on(self, uid: str, talk: Talk) -> None:
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
        """None once it is over or gone."""
        track = self._state.tracks.get(uid)
        return None if track is None or track.dormant else track

    async def _turn(self, track: Track, talk: Talk) -> FleetctlError | None:
        """What it met, which passes tell to people."""
        uid, spec = track.resource.uid, track.spec
        assert isinstance(spec, SweepSpec)
        trouble: FleetctlError | None = None
        try:
            ask = self._ask(spec, track.resource.namespace)
            answer = await guarded(_turned(talk, spec, ask), what="talk", key=uid)
            if isinstance(answer, NoAnswer):
                trouble = Unavailable(f"W&B: {answer.why}", reason="Unreachable")
        except FleetctlError as error:
            trouble = error
        news = None
        if trouble is not None:
            news = getattr(trouble, "reason", "Refused"), words_of(trouble)
        if news != talk.report.trouble:
            talk.report = replace(talk.report, trouble=news)
            self._state.poke(uid)
        return trouble

    async def _rest(self, uid: str, talk: Talk, trouble: FleetctlError | None, tries: int) -> None:
        """Until the next heartbeat, or until a pass wants another thing than before."""
        span_s = self._beat_s
        if trouble is not None:
            asked_s = getattr(trouble, "retry_after_s", 0.0)
            span_s = max(asked_s, self._state.backoff_s(tries))
        elif talk.wanted.suspended and talk.report.state:
            span_s *= RESTING
        await asyncio.sleep(min(GAP_S, span_s))
        wake = self._woken[uid]
        await woken(wake, span_s)
        wake.clear()

    def _ask(self, spec: SweepSpec, namespace: str) -> Ask:
        """Raises Unavailable where the key is not there."""
        names = spec.template.secrets if spec.template is not None else ()
        found = self._secrets(names, namespace) if names else Found()
        key = found.values.get(KEY)
        if not key:
            raise Unavailable(
                f"no Secret of its template gives {KEY}", reason="KeyMissing", hint=KEY_HINT
            )
        if self._connect is None:
            raise Unavailable("this engine does not talk to W&B", reason="Unavailable")
        return self._connect(names_of(spec)[2], key)


async def _turned(talk: Talk, spec: SweepSpec, ask: Ask) -> None:
    """What W&B does not find, such as an entity, is waited for like what it refuses."""
    try:
        await talk.turn(spec, ask)
    except NotFound as error:
        raise Refused(str(error), hint=error.hint) from error
