"""Acts as the W&B agent for a sweep: polls if it exists, its state, the run of each agent, and
requests the next run.

An agent of W&B's has one run at a time, so we are as many agents as there are trials at once. An
agent without a run requests one by its heartbeat; the assigned run is durable before a trial
begins. A reply may be lost: before an agent requests again after that, W&B is queried for its
assigned run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import NotFound, Refused, Unavailable
from fleetctl.controllers.wandb import (
    CANCELED,
    FINISHED,
    OPEN_STATES,
    PAUSED,
    PENDING,
    RUNNING,
    SWEEP_GONE,
    SweepLocation,
    SweepReport,
)
from fleetctl.engine.kinds.wandb.sweep_link import PAUSED as BY_US
from fleetctl.engine.kinds.wandb.sweep_link import (
    PAUSING,
    SweepLink,
    assign_agents,
    attach_sweep,
    create_sweep,
    find_created_sweep,
    path_of,
    read_link,
    store_link,
)
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.values.hints import HintedText
from fleetctl.wandb import calls
from fleetctl.wandb.calls import GraphqlCall

if TYPE_CHECKING:
    from fleetctl.controllers.history.history import History
    from fleetctl.controllers.wandb import AssignedRuns
    from fleetctl.engine.shared.engine_state import EngineState

READS_EACH = 3  # heartbeats between two looks at the sweep itself
BELIEVED = 3  # replies of the same sort before a sweep counts as cancelled or gone
AGAIN = frozenset({"running", "finished"})  # states of a run that was begun: not to be begun again
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
class AgentGoal:
    """The last pass's request to W&B: a number of further runs, or a pause."""

    slots: int = 0
    suspended: bool = False
    deleted: bool = False


class WandbAgent:
    """report: read by passes. Lives on the loop; everything durable is in the object's ties."""

    def __init__(
        self,
        state: EngineState,
        uid: str,
        host: str,
    ) -> None:
        self._state = state
        self._uid = uid
        self._host = host
        self.report = SweepReport()
        self.wanted = AgentGoal()
        self.closed = False  # for a deleted object: no work is left at W&B
        self._unsure: set[str] = set()  # agents that may have an assigned run unknown to us
        self._sure = False  # agents that existed before this controller
        self._reads_due = 0
        self._odd = 0  # replies in a row by which the sweep is cancelled or gone

    # -- one tick ----------------------------------------------------------------------------------

    async def turn(self, spec: SweepSpec, ask: GraphqlCall) -> None:
        """Runs one turn. Raises the errors of `ask`."""
        ties = self._read_link()
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
        # Running trials still send heartbeats after a failure, so that W&B takes no run for lost.
        await self._beat(ask, await self._agents(ask))

    def _work(self) -> tuple[AssignedRuns, History] | None:
        """Returns the work as the last pass left it; None while it is to be read again. Valid until
        the next await: it lacks what a tick has taken back.
        """
        track = self._state.tracks.get(self._uid)
        if track is None or track.work is None or track.work.controller.handed is None:
            return None
        return track.work.controller.handed, track.work.history

    def _read_link(self) -> SweepLink:
        row = self._state.store.resources.of(self._uid)
        if row is not None:
            return read_link(row)
        return SweepLink()

    def _keep(self, ties: SweepLink) -> None:
        store_link(self._state.store, self._uid, ties)

    def _store_report(self, report: SweepReport) -> None:
        """Stores the report, and wakes a pass if it changed."""
        if report != self.report:
            self.report = report
            self._state.poke(self._uid)

    # -- the sweep itself --------------------------------------------------------------------------

    async def _open(
        self,
        ask: GraphqlCall,
        spec: SweepSpec,
        ties: SweepLink,
    ) -> bool:
        """Finds the sweep or makes it; returns true if it is known now."""
        if spec.attaches:
            home = await attach_sweep(ask, spec)
            if home is None:
                self._miss(f"W&B has no sweep {path_of(spec)}", hint=NOWHERE_HINT)
                return False
        else:
            row = self._state.store.resources.of(self._uid)
            words = f"fleetctl {row.key if row is not None else ''} {self._uid}"
            home = None
            if ties.creating:
                try:
                    home = await find_created_sweep(ask, spec, ties.creating)
                except Refused:
                    self._cannot_tell("a sweep that was made before, and is not used")
            if home is None:
                self._keep(replace(ties, creating=words))
                home, warnings = await create_sweep(ask, spec, words)
                for warning in warnings:
                    self._state.say(self._uid, "WandbWarning", f"W&B: {warning}", kind="Warning")
        self._odd = 0
        self._keep(replace(self._read_link(), home=home))
        track = self._state.tracks.get(self._uid)
        if track is not None and home.config:
            track.outdate()  # its trials' command and metric are known only now
        self._state.say(self._uid, "WandbSweep", f"its sweep at W&B is {home.url}")
        self._store_report(replace(self.report, home=home, trouble=None))
        return True

    async def _look(self, ask: GraphqlCall) -> None:
        """Polls the state. A cancelled or missing sweep is believed after BELIEVED such replies."""
        home = self._home()
        found = await calls.read_sweep(ask, home.id, entity=home.entity, project=home.project)
        if found is None:
            self._miss(f"W&B has no sweep {home.path} any more", hint=GONE_HINT)
            return
        if found.state == CANCELED and self._odd + 1 < BELIEVED:
            self._odd += 1
            return
        self._odd = 0
        self._reads_due = READS_EACH
        self._store_report(
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
        """Counts a reply that the sweep is gone, and stores it once it was repeated often enough to
        be believed; before that raises Unavailable.
        """
        self._odd += 1
        if self._odd < BELIEVED:
            raise Unavailable(text, reason=SWEEP_GONE, hint=hint)
        self._store_report(
            replace(
                self.report,
                home=self._read_link().home,
                gone=HintedText(text, hint),
                trouble=None,
            )
        )

    def _cannot_tell(self, what: str) -> None:
        """Reports that an older server lacks the query."""
        text = f"this W&B does not report whether there is {what}; look at its page"
        self._state.say(self._uid, "WandbCannotTell", text, kind="Warning")

    def _home(self) -> SweepLocation:
        home = self._read_link().home
        assert home is not None, "the sweep is found before it is asked for anything"
        return home

    async def _obey(self, ask: GraphqlCall) -> None:
        """Pauses the sweep with the object, and resumes it with the object; each once, so that a
        user who does the opposite at W&B is not contradicted.
        """
        ties = self._read_link()
        suspended = self.wanted.suspended
        done = ties.paused == BY_US if suspended else not ties.paused
        if done or (suspended and not ties.begun):
            return
        if suspended:
            self._keep(replace(ties, paused=PAUSING))
        home = self._home()
        found = await calls.read_sweep(ask, home.id, entity=home.entity, project=home.project)
        if found is None:
            raise Unavailable(f"W&B has no sweep {home.path}", reason=SWEEP_GONE)
        before, after = (RUNNING, PAUSED) if suspended else (PAUSED, RUNNING)
        if found.state == before:
            await calls.set_sweep_state(ask, home.key, after)
        self._keep(replace(self._read_link(), paused=BY_US if suspended else ""))
        self._reads_due = 0

    async def _close(
        self,
        ask: GraphqlCall,
        spec: SweepSpec,
        ties: SweepLink,
    ) -> None:
        """Closes the sweep of a deleted object: a sweep that we made assigns no more runs; another
        is left as it is.
        """
        home = ties.home
        if home is None and ties.creating:
            home = await find_created_sweep(ask, spec, ties.creating)
        found: calls.WandbSweep | None = None
        if home is not None and home.made:
            found = await calls.read_sweep(ask, home.id, entity=home.entity, project=home.project)
        if found is not None and found.state in OPEN_STATES:
            await calls.set_sweep_state(ask, found.key, FINISHED)
        self.close()

    def close(self) -> None:
        self.closed = True
        self._state.poke(self._uid)

    # -- agents and their runs ---------------------------------------------------------------------

    async def _find_lost(self, ask: GraphqlCall) -> None:
        """Finds runs that an agent of ours was assigned by a lost reply."""
        ties = self._read_link()
        idle = [agent for agent, run in ties.agents.items() if not run]
        unsure = [it for it in idle if not self._sure or it in self._unsure]
        home = self._home()
        for agent in unsure:
            try:
                runs = await calls.runs_of(
                    ask,
                    agent,
                    home.id,
                    entity=home.entity,
                    project=home.project,
                )
            except Refused:
                runs = []
                self._cannot_tell(f"a run that was handed to agent {agent}, and never begins")
            if (work := self._work()) is None:
                return
            for run, state, params in runs:
                if (
                    state not in AGAIN
                    and not work[0].knows(run)
                    and run not in self._read_link().handed
                ):
                    self._take(agent, run, params)
                    self._state.say(self._uid, RUN_FOUND, f"W&B had handed out run {run} before")
            self._unsure.discard(agent)
        self._sure = True
        self._store_report(replace(self.report, sure=True))

    async def _agents(self, ask: GraphqlCall) -> list[str]:
        """Returns the agents that request a run now. An agent is recorded here before its first
        request.
        """
        ties = self._read_link()
        work = self._work()
        if work is None:
            return []
        ties, left = assign_agents(ties, *work)
        self._keep(ties)
        idle = [agent for agent, run in ties.agents.items() if not run][: self.wanted.slots]
        while left or len(idle) < self.wanted.slots:
            agent = await self._one_more(ask, left.pop(0) if left else "")
            if not self._read_link().agents[agent]:
                idle.append(agent)
        return idle

    async def _one_more(self, ask: GraphqlCall, run: str) -> str:
        """Makes one more agent; run: that it has from the beginning, or ""."""
        home = self._home()
        agent = await calls.become_agent(
            ask,
            home.id,
            entity=home.entity,
            project=home.project,
            host=self._host,
        )
        self._keep(replace(self._read_link().with_agent(agent, run), begun=True))
        return agent

    async def _beat(self, ask: GraphqlCall, asking: Sequence[str]) -> None:
        """Sends a heartbeat for each agent with a run, and for those that request one."""
        ties = self._read_link()
        work = self._work()
        if work is None:
            return
        handed, history = work
        live = {it: run for it, run in ties.agents.items() if handed.is_open(run, history)}
        beats = [self._one(ask, agent, run) for agent, run in live.items()]
        beats += [self._one(ask, agent, "") for agent in asking]
        # Each reply counts, also where another one failed.
        answers = await asyncio.gather(*beats, return_exceptions=True)
        wrong = [it for it in answers if isinstance(it, BaseException)]
        types = {word for it in answers if not isinstance(it, BaseException) for word in it}
        if types & {"run", "resume"}:
            self._store_report(replace(self.report, exits=0))
        elif "exit" in types and asking:
            exits = self.report.exits + 1
            await self._look(ask)  # the sweep's state in this reply is dropped with that
            if self._odd:
                self._reads_due = 0  # it may be cancelled, which is more specific than finished
            else:
                self._store_report(replace(self.report, exits=exits))
        if wrong:
            raise wrong[0]
        self._store_report(replace(self.report, sure=not self._unsure))

    async def _one(
        self,
        ask: GraphqlCall,
        agent: str,
        run: str,
    ) -> set[str]:
        """Its orders, carried out as far as they are ours; their types. An `exit` ends no run."""
        if not run:
            self._unsure.add(agent)  # until its reply is here
            self.report = replace(self.report, sure=False)
        try:
            orders = await calls.send_heartbeat(ask, agent, {run: True} if run else {})
        except NotFound:
            # The error concerns the sweep or the agent: a look at the sweep shows which.
            self._keep(self._read_link().without_agent(agent))
            self._unsure.discard(agent)
            self._reads_due = 0
            return set()
        for order in orders:
            if order.type in ("run", "resume") and order.run:
                self._take(agent, order.run, order.params or {})
                if order.type == "run" and self.report.run_count is not None:
                    self.report = replace(self.report, run_count=self.report.run_count + 1)
                if self.report.state == PENDING:  # not any more: the next look may never come
                    self._store_report(replace(self.report, state=RUNNING))
            elif order.type == "stop":
                self._store_report(replace(self.report, stopped=self.report.stopped | {order.run}))
            elif order.type == "exit" and not run:
                self._keep(self._read_link().without_agent(agent))
        self._unsure.discard(agent)
        # For an agent with a run, `exit` does not mean that W&B has no further runs.
        return {order.type for order in orders if not (run and order.type == "exit")}

    def _take(
        self,
        agent: str,
        run: str,
        params: Mapping[str, Any],
    ) -> None:
        """Stores the assigned run durably, so that it is ours through a crash of this
        controller.
        """
        self._keep(self._read_link().with_run(agent, run, params))
        self.wanted = replace(self.wanted, slots=max(0, self.wanted.slots - 1))
        self._state.poke(self._uid)
