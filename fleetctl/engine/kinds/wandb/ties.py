"""What ties an object to a sweep at W&B, kept with the object as an annotation: where the sweep is,
the agents that we are, and what they were handed. Written before anything is done because of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fleetctl.controllers.wandb.handed import Home
from fleetctl.tracking.annotations import WANDB

if TYPE_CHECKING:
    from fleetctl.controllers.history.history import History
    from fleetctl.controllers.model import Resource
    from fleetctl.controllers.wandb.handed import Handed
    from fleetctl.stores.base import Store


PAUSING, PAUSED = "pausing", "paused"


@dataclass(frozen=True, slots=True)
class Ties:
    """creating: the words by which a sweep of ours is found whose creation got no answer; "" before
    it was asked for. agents: each of ours, and the run that it has, or "". handed: run -> its
    parameters, of runs whose trial may have no row yet. begun: it has asked for runs. paused: by
    us, PAUSING until that is done.
    """

    home: Home | None = None
    creating: str = ""
    agents: Mapping[str, str] = field(default_factory=dict)
    handed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    begun: bool = False
    paused: str = ""

    @property
    def is_nothing(self) -> bool:
        """W&B was asked for nothing yet."""
        return self.home is None and not self.creating

    def with_agent(self, agent: str, run: str = "") -> Ties:
        return replace(self, agents={**self.agents, agent: run})

    def without_agent(self, agent: str) -> Ties:
        return replace(self, agents={it: run for it, run in self.agents.items() if it != agent})

    def with_run(self, agent: str, run: str, params: Mapping[str, Any]) -> Ties:
        return replace(self.with_agent(agent, run), handed={**self.handed, run: dict(params)})


def assigned(ties: Ties, handed: Handed, history: History) -> tuple[Ties, list[str]]:
    """Each run that is under way or is to begin with an agent, and the other agents free; and the
    runs for which there is none. What has a row is not kept as handed out any more.
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
    # Of an agent that W&B does not know any more, or that was handed several unheard.
    live = (handed.run_ids.get(index, "") for index in history.live_by_index)
    left = [run for run in dict.fromkeys([*live, *waiting]) if run not in agents.values()]
    for agent in [agent for agent, run in agents.items() if not run]:
        agents[agent] = left.pop(0) if left else ""
    return replace(ties, agents=agents, handed=waiting), left


def ties_of(resource: Resource) -> Ties:
    text = resource.annotations.get(WANDB, "")
    if not text:
        return Ties()
    found = json.loads(text)
    home = found.pop("home", None)
    return Ties(home=Home(**home) if home else None, **found)


def keep(store: Store, uid: str, ties: Ties) -> Resource | None:
    """Durable when this returns; the object as it is from then on, None where it is gone."""
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
