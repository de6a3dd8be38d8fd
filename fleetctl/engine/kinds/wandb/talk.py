"""One sweep's talk with W&B: is it there, how does it stand, who has which run, what comes next.

An agent of W&B's has one run at a time, so we are as many agents as there are trials at once. One
without a run asks for one by its heartbeat; what it is handed is durable before a trial begins. An
answer may be lost: before an agent asks again after that, W&B is asked what it was handed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import NotFound, Refused, Unavailable
from fleetctl.controllers.wandb.handed import (
    CANCELED,
    FINISHED,
    OPEN_STATES,
    PAUSED,
    PENDING,
    RUNNING,
    SWEEP_GONE,
    Home,
    SweepReport,
)
from fleetctl.engine.kinds.wandb.opening import attached, found_again, made, path_of
from fleetctl.engine.kinds.wandb.ties import PAUSED as BY_US
from fleetctl.engine.kinds.wandb.ties import PAUSING, Ties, assigned, keep, ties_of
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.values.hints import with_hint
from fleetctl.wandb import calls
from fleetctl.wandb.client import Ask

if TYPE_CHECKING:
    from fleetctl.controllers.history.history import History
    from fleetctl.controllers.wandb.handed import Handed
    from fleetctl.engine.shared.state import State

READS_EACH = 3  # heartbeats between two looks at the sweep itself
BELIEVED = 3  # answers of the same sort before a sweep counts as cancelled or gone
AGAIN = frozenset({"running", "finished"})  # runs that somebody has begun: not to be begun again
RUN_FOUND = "WandbRunFound"
NOWHERE_HINT = (
    "its page is at ENTITY/PROJECT/sweeps/ID: name these in `wandb: {entity, project, sweepId}`, "
    "and use a key that may see them"
)
GONE_HINT = (
    "it was deleted there, or its key may not see it any more; `fleetctl delete` and `apply` again "
    "make a new one"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the last pass wants of W&B: so many more runs, or a pause."""

    slots: int = 0
    suspended: bool = False
    deleted: bool = False


class Talk:
    """report: what passes read. Lives on the loop; everything durable is in the object's ties."""

    def __init__(self, state: State, uid: str, host: str) -> None:
        self._state, self._uid, self._host = state, uid, host
        self.report = SweepReport()
        self.wanted = Wanted()
        self.closed = False  # of a deleted object: nothing is left to do at W&B
        self._unsure: set[str] = set()  # agents that may have been handed what nobody here knows
        self._sure = False  # of those that were there before this controller
        self._reads_due = 0
        self._odd = 0  # answers in a row by which the sweep is cancelled or gone

    # -- one tick ----------------------------------------------------------------------------------

    async def turn(self, spec: SweepSpec, ask: Ask) -> None:
        """Raises what `ask` raises."""
        ties = self._ties()
        if self.wanted.deleted:
            await self._close(ask, spec, ties)
            return
        if ties.home is None and not await self._open(ask, spec, ties):
            return
        await self._obey(ask)
        if self._reads_due <= 0 or not self.report.state:
            await self._look(ask)
        self._reads_due -= 1
        if self.report.gone or self.report.state == CANCELED:
            return
        await self._find_lost(ask)
        # What still runs is told on whatever comes, so that W&B takes no run for lost.
        await self._beat(ask, await self._agents(ask))

    def _work(self) -> tuple[Handed, History] | None:
        """As the last pass left it; None while it is to be read anew. Right until the next await:
        what a tick has taken back is not in it.
        """
        track = self._state.tracks.get(self._uid)
        if track is None or track.work is None or track.work.controller.handed is None:
            return None
        return track.work.controller.handed, track.work.history

    def _ties(self) -> Ties:
        row = self._state.store.resources.of(self._uid)
        return ties_of(row) if row is not None else Ties()

    def _keep(self, ties: Ties) -> None:
        keep(self._state.store, self._uid, ties)

    def _tell(self, report: SweepReport) -> None:
        """Have a pass look at it, if it is another thing than before."""
        if report != self.report:
            self.report = report
            self._state.poke(self._uid)

    # -- the sweep itself --------------------------------------------------------------------------

    async def _open(self, ask: Ask, spec: SweepSpec, ties: Ties) -> bool:
        """Find the sweep or make it; whether it is known now."""
        if spec.attaches:
            home = await attached(ask, spec)
            if home is None:
                self._miss(f"W&B has no sweep {path_of(spec)}", hint=NOWHERE_HINT)
                return False
        else:
            row = self._state.store.resources.of(self._uid)
            words = f"fleetctl {row.key if row is not None else ''} {self._uid}"
            home = None
            if ties.creating:
                try:
                    home = await found_again(ask, spec, ties.creating)
                except Refused:
                    self._cannot_tell("a sweep that was made before, and is not used")
            if home is None:
                self._keep(replace(ties, creating=words))
                home, warnings = await made(ask, spec, words)
                for warning in warnings:
                    self._state.say(self._uid, "WandbWarning", f"W&B: {warning}", kind="Warning")
        self._odd = 0
        self._keep(replace(self._ties(), home=home))
        track = self._state.tracks.get(self._uid)
        if track is not None and home.config:
            track.outdate()  # its trials' command and metric are known only now
        self._state.say(self._uid, "WandbSweep", f"its sweep at W&B is {home.url}")
        self._tell(replace(self.report, home=home, trouble=None))
        return True

    async def _look(self, ask: Ask) -> None:
        """How it stands. That it is cancelled or gone is believed when it is said twice."""
        home = self._home()
        found = await calls.read(ask, home.id, entity=home.entity, project=home.project)
        if found is None:
            self._miss(f"W&B has no sweep {home.path} any more", hint=GONE_HINT)
            return
        if found.state == CANCELED and self._odd + 1 < BELIEVED:
            self._odd += 1
            return
        self._odd = 0
        self._reads_due = READS_EACH
        self._tell(
            replace(
                self.report,
                home=home,
                state=found.state,
                run_count=found.run_count,
                expected=found.expected,
                best=found.best,
            )
        )

    def _miss(self, text: str, *, hint: str) -> None:
        """Raises Unavailable until it is said so often that it is believed."""
        self._odd += 1
        if self._odd < BELIEVED:
            raise Unavailable(text, reason=SWEEP_GONE, hint=hint)
        gone = with_hint(text, hint)
        self._tell(replace(self.report, home=self._ties().home, gone=gone, trouble=None))

    def _cannot_tell(self, what: str) -> None:
        """An older server has no such question."""
        text = f"this W&B cannot tell whether there is {what}; look at its page"
        self._state.say(self._uid, "WandbCannotTell", text, kind="Warning")

    def _home(self) -> Home:
        home = self._ties().home
        assert home is not None, "the sweep is found before it is asked for anything"
        return home

    async def _obey(self, ask: Ask) -> None:
        """Pause it with the object, and let it go on with it; each once, so that whoever does the
        other at W&B is not contradicted.
        """
        ties, suspended = self._ties(), self.wanted.suspended
        done = ties.paused == BY_US if suspended else not ties.paused
        if done or (suspended and not ties.begun):
            return
        if suspended:
            self._keep(replace(ties, paused=PAUSING))
        home = self._home()
        found = await calls.read(ask, home.id, entity=home.entity, project=home.project)
        if found is None:
            raise Unavailable(f"W&B has no sweep {home.path}", reason=SWEEP_GONE)
        before, after = (RUNNING, PAUSED) if suspended else (PAUSED, RUNNING)
        if found.state == before:
            await calls.move(ask, home.key, after)
        self._keep(replace(self._ties(), paused=BY_US if suspended else ""))
        self._reads_due = 0

    async def _close(self, ask: Ask, spec: SweepSpec, ties: Ties) -> None:
        """Of a deleted object: a sweep that we made hands out nothing more; another is left as it
        is.
        """
        home = ties.home
        if home is None and ties.creating:
            home = await found_again(ask, spec, ties.creating)
        found: calls.Found | None = None
        if home is not None and home.made:
            found = await calls.read(ask, home.id, entity=home.entity, project=home.project)
        if found is not None and found.state in OPEN_STATES:
            await calls.move(ask, found.key, FINISHED)
        self.close()

    def close(self) -> None:
        self.closed = True
        self._state.poke(self._uid)

    # -- agents and their runs ---------------------------------------------------------------------

    async def _find_lost(self, ask: Ask) -> None:
        """Runs that an agent of ours was handed by an answer that never came here."""
        ties = self._ties()
        idle = [agent for agent, run in ties.agents.items() if not run]
        unsure = [it for it in idle if not self._sure or it in self._unsure]
        home = self._home()
        for agent in unsure:
            try:
                runs = await calls.runs_of(
                    ask, agent, home.id, entity=home.entity, project=home.project
                )
            except Refused:
                runs = []
                self._cannot_tell(f"a run that was handed to agent {agent}, and never begins")
            if (work := self._work()) is None:
                return
            for run, state, params in runs:
                if state not in AGAIN and not work[0].knows(run) and run not in self._ties().handed:
                    self._take(agent, run, params)
                    self._state.say(self._uid, RUN_FOUND, f"W&B had handed out run {run} before")
            self._unsure.discard(agent)
        self._sure = True
        self._tell(replace(self.report, sure=True))

    async def _agents(self, ask: Ask) -> list[str]:
        """Those that ask for a run now. One is known here before it asks for the first time."""
        ties, work = self._ties(), self._work()
        if work is None:
            return []
        ties, left = assigned(ties, *work)
        self._keep(ties)
        idle = [agent for agent, run in ties.agents.items() if not run][: self.wanted.slots]
        while left or len(idle) < self.wanted.slots:
            agent = await self._one_more(ask, left.pop(0) if left else "")
            if not self._ties().agents[agent]:
                idle.append(agent)
        return idle

    async def _one_more(self, ask: Ask, run: str) -> str:
        """An agent more; run: that it has from the beginning, or ""."""
        home = self._home()
        agent = await calls.become_agent(
            ask, home.id, entity=home.entity, project=home.project, host=self._host
        )
        self._keep(replace(self._ties().with_agent(agent, run), begun=True))
        return agent

    async def _beat(self, ask: Ask, asking: Sequence[str]) -> None:
        """A heartbeat of each agent with a run, and of those that ask for one."""
        ties, work = self._ties(), self._work()
        if work is None:
            return
        handed, history = work
        live = {it: run for it, run in ties.agents.items() if handed.is_open(run, history)}
        beats = [self._one(ask, agent, run) for agent, run in live.items()]
        beats += [self._one(ask, agent, "") for agent in asking]
        # Each answer counts, also where another one failed.
        answers = await asyncio.gather(*beats, return_exceptions=True)
        wrong = [it for it in answers if isinstance(it, BaseException)]
        types = {word for it in answers if not isinstance(it, BaseException) for word in it}
        if types & {"run", "resume"}:
            self._tell(replace(self.report, exits=0))
        elif "exit" in types and asking:
            exits = self.report.exits + 1
            await self._look(ask)  # what it tells of the sweep goes with that
            if self._odd:
                self._reads_due = 0  # it may be cancelled, which says more than that it is over
            else:
                self._tell(replace(self.report, exits=exits))
        if wrong:
            raise wrong[0]
        self._tell(replace(self.report, sure=not self._unsure))

    async def _one(self, ask: Ask, agent: str, run: str) -> set[str]:
        """Its orders, carried out as far as they are ours; their types. An `exit` ends no run."""
        if not run:
            self._unsure.add(agent)  # until its answer is here
            self.report = replace(self.report, sure=False)
        try:
            orders = await calls.beat(ask, agent, {run: True} if run else {})
        except NotFound:
            # Of the sweep or of the agent: a look at the sweep says which.
            self._keep(self._ties().without_agent(agent))
            self._unsure.discard(agent)
            self._reads_due = 0
            return set()
        for order in orders:
            if order.type in ("run", "resume") and order.run:
                self._take(agent, order.run, order.params or {})
                if order.type == "run" and self.report.run_count is not None:
                    self.report = replace(self.report, run_count=self.report.run_count + 1)
                if self.report.state == PENDING:  # not any more: the next look may never come
                    self._tell(replace(self.report, state=RUNNING))
            elif order.type == "stop":
                self._tell(replace(self.report, stopped=self.report.stopped | {order.run}))
            elif order.type == "exit" and not run:
                self._keep(self._ties().without_agent(agent))
        self._unsure.discard(agent)
        # Of one with a run, `exit` says nothing of what W&B still has to hand out.
        return {order.type for order in orders if not (run and order.type == "exit")}

    def _take(self, agent: str, run: str, params: Mapping[str, Any]) -> None:
        """It is ours from now on, whatever happens to this controller."""
        self._keep(self._ties().with_run(agent, run, params))
        self.wanted = replace(self.wanted, slots=max(0, self.wanted.slots - 1))
        self._state.poke(self._uid)
