"""Finds or makes the sweep of an object at W&B: an existing one, one made by a lost reply, or a new
one. Called by wandb_agent.py, which stores the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fleetctl.controllers.wandb.assigned_runs import SweepLocation, names_of
from fleetctl.wandb import calls
from fleetctl.wandb.graphql import GraphqlCall, app_url

if TYPE_CHECKING:
    from fleetctl.specs.kinds.sweep import SweepSpec

NOTHING: Mapping[str, Any] = {}
PROJECT = "uncategorized"  # W&B's own default


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
    """entity: the requested one, where the reply has none."""
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
