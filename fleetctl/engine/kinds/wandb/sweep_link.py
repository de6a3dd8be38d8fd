"""Finds or makes the sweep of an object at W&B, and stores the link to it as an annotation of the
object.

Written before any action that depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fleetctl.controllers.wandb import SweepLocation, names_of
from fleetctl.tracking.annotations import WANDB
from fleetctl.wandb import calls
from fleetctl.wandb.calls import GraphqlCall, app_url

if TYPE_CHECKING:
    from fleetctl.controllers.history.history import History
    from fleetctl.controllers.model import Resource
    from fleetctl.controllers.wandb import AssignedRuns
    from fleetctl.specs.kinds.sweep import SweepSpec
    from fleetctl.stores.base import Store


PAUSING = "pausing"
PAUSED = "paused"

NOTHING: Mapping[str, Any] = {}
PROJECT = "uncategorized"  # W&B's own default


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


def read_link(resource: Resource) -> SweepLink:
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


async def attach_sweep(ask: GraphqlCall, spec: SweepSpec) -> SweepLocation | None:
    """Returns the sweep that `wandb.sweepId` names, with its configuration where the spec has none;
    None where W&B has no such sweep.
    """
    entity, project, base_url = _resolve_names(spec)
    found = await calls.read_sweep(ask, _sweep_id(spec), entity=entity, project=project)
    if found is None:
        return None
    own = "search" in spec.model_fields_set
    config = {} if own else calls.config_of(found.config)
    return _build_location(found, entity, base_url, config=config)


async def find_created_sweep(
    ask: GraphqlCall,
    spec: SweepSpec,
    words: str,
) -> SweepLocation | None:
    """Returns the sweep of ours whose description contains these words; None where none was made.
    Raises Refused where a server cannot search.
    """
    entity, project, base_url = _resolve_names(spec)
    found = await calls.find_sweep(ask, words, entity=entity, project=project)
    if found is None:
        return None
    return _build_location(found, entity, base_url, made=True)


async def create_sweep(
    ask: GraphqlCall,
    spec: SweepSpec,
    words: str,
) -> tuple[SweepLocation, list[str]]:
    """Makes a new sweep; returns it with W&B's warnings. words: by which it is found again."""
    entity, project, base_url = _resolve_names(spec)
    own = spec.search.description
    found, warnings = await calls.create_sweep(
        ask,
        config_of(spec),
        entity=entity,
        project=project,
        description=f"{own}\n\n{words}" if own else words,
    )
    return _build_location(found, entity, base_url, made=True), warnings


def config_of(spec: SweepSpec) -> dict[str, Any]:
    """Returns the search as W&B takes it: without our own fields."""
    ours = {"prior_trials", "sampler"}
    return spec.search.model_dump(
        mode="json",
        by_alias=True,
        exclude_defaults=True,
        exclude=ours,
    )


def path_of(spec: SweepSpec) -> str:
    """Returns the path of the sweep that `wandb.sweepId` names, as far as it is given."""
    entity, project, _ = _resolve_names(spec)
    return "/".join(filter(None, (entity, project, _sweep_id(spec))))


def _resolve_names(spec: SweepSpec) -> tuple[str, str, str]:
    entity, project, base_url = names_of(spec)
    return entity, project or PROJECT, base_url


def _sweep_id(spec: SweepSpec) -> str:
    assert spec.wandb is not None and spec.wandb.sweep_id is not None, "it attaches"
    return spec.wandb.sweep_id


def _build_location(
    found: calls.WandbSweep,
    entity: str,
    base_url: str,
    *,
    made: bool = False,
    config: Mapping[str, Any] = NOTHING,
) -> SweepLocation:
    """Builds the location of a sweep at W&B. entity: the requested one, where the reply has
    none.
    """
    entity = found.entity or entity
    url = f"{app_url(base_url)}/{entity}/{found.project}/sweeps/{found.name}"
    return SweepLocation(
        found.name,
        found.key,
        entity,
        found.project,
        url,
        made,
        config,
    )
