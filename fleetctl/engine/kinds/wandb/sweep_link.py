"""Stores the link of an object to a sweep at W&B, as an annotation of the object: the sweep's
location, our agents, and their assigned runs. Written before any action that depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fleetctl.controllers.wandb.assigned_runs import SweepLocation
from fleetctl.tracking.annotations import WANDB

if TYPE_CHECKING:
    from fleetctl.controllers.history.history import History
    from fleetctl.controllers.model import Resource
    from fleetctl.controllers.wandb.assigned_runs import AssignedRuns
    from fleetctl.stores.base import Store


PAUSING = "pausing"
PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class SweepLink:
    """creating: the words by which a sweep of ours is found whose creation got no reply; "" before
    the request. agents: each of ours, and the run that it has, or "". handed: run -> its
    parameters, for runs whose trial may have no row yet. begun: it has requested runs. paused: by
    us, PAUSING until that is done.
    """

    home: SweepLocation | None = None
    creating: str = ""
    agents: Mapping[str, str] = field(default_factory=dict)
    handed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    begun: bool = False
    paused: str = ""

    @property
    def is_nothing(self) -> bool:
        """Returns true before the first request to W&B."""
        return self.home is None and not self.creating

    def with_agent(self, agent: str, run: str = "") -> SweepLink:
        return replace(self, agents={**self.agents, agent: run})

    def without_agent(self, agent: str) -> SweepLink:
        return replace(self, agents={it: run for it, run in self.agents.items() if it != agent})

    def with_run(
        self,
        agent: str,
        run: str,
        params: Mapping[str, Any],
    ) -> SweepLink:
        return replace(self.with_agent(agent, run), handed={**self.handed, run: dict(params)})


def assign_agents(
    ties: SweepLink,
    handed: AssignedRuns,
    history: History,
) -> tuple[SweepLink, list[str]]:
    """Returns each run that is under way or is to begin with an agent, and the other agents free;
    and the runs without an agent. A run with a row is no longer stored as assigned.
    """
    waiting = {
        run: params
        for run, params in ties.handed.items()
        if not handed.knows(run) or handed.awaits_begin(run, history)
    }
    agents = {
        agent: run if run in waiting or handed.is_open(run, history) else ""
        for agent, run in ties.agents.items()
    }
    # Runs of an agent that W&B does not know any more, or that was assigned several by lost
    # replies.
    live = (handed.run_ids.get(index, "") for index in history.live_by_index)
    left = [run for run in dict.fromkeys([*live, *waiting]) if run not in agents.values()]
    for agent in [agent for agent, run in agents.items() if not run]:
        agents[agent] = left.pop(0) if left else ""
    return replace(ties, agents=agents, handed=waiting), left


def ties_of(resource: Resource) -> SweepLink:
    text = resource.annotations.get(WANDB, "")
    if not text:
        return SweepLink()
    found = json.loads(text)
    home = found.pop("home", None)
    return SweepLink(home=SweepLocation(**home) if home else None, **found)


def store_link(
    store: Store,
    uid: str,
    ties: SweepLink,
) -> Resource | None:
    """Stores the ties durably; returns the object as it is from then on, None where it is gone."""
    row = store.resources.of(uid)
    if row is None:
        return None
    fields = {name: it for name, it in asdict(ties).items() if it}
    text = json.dumps(fields, separators=(",", ":"))
    if row.annotations.get(WANDB, "") == text:
        return row
    again = replace(row, annotations={**row.annotations, WANDB: text})
    with store.transaction():
        return store.resources.put(again, expected_version=row.version)
