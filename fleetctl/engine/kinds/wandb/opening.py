"""How an object comes to its sweep at W&B: one that is there, one that an unheard answer has made,
or a new one. Called by talk.py, which keeps what it is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fleetctl.controllers.wandb.handed import Home, names_of
from fleetctl.wandb import calls
from fleetctl.wandb.client import Ask, app_url

if TYPE_CHECKING:
    from fleetctl.specs.kinds.sweep import SweepSpec

NOTHING: Mapping[str, Any] = {}
PROJECT = "uncategorized"  # W&B's own, where nobody names one


async def attached(ask: Ask, spec: SweepSpec) -> Home | None:
    """The sweep that `wandb.sweepId` names, with its configuration where the spec has none; None
    where W&B has no such sweep.
    """
    entity, project, base_url = _names(spec)
    found = await calls.read(ask, _sweep_id(spec), entity=entity, project=project)
    if found is None:
        return None
    own = "search" in spec.model_fields_set
    config = {} if own else calls.config_of(found.config)
    return _home(found, entity, base_url, config=config)


async def found_again(ask: Ask, spec: SweepSpec, words: str) -> Home | None:
    """The sweep of ours in whose description these words are; None where none was made. Raises
    Refused where a server cannot tell.
    """
    entity, project, base_url = _names(spec)
    found = await calls.find(ask, words, entity=entity, project=project)
    return None if found is None else _home(found, entity, base_url, made=True)


async def made(ask: Ask, spec: SweepSpec, words: str) -> tuple[Home, list[str]]:
    """A new one, and what W&B warns of. words: by which it is found again."""
    entity, project, base_url = _names(spec)
    own = spec.search.description
    found, warnings = await calls.create(
        ask,
        config_of(spec),
        entity=entity,
        project=project,
        description=f"{own}\n\n{words}" if own else words,
    )
    return _home(found, entity, base_url, made=True), warnings


def config_of(spec: SweepSpec) -> dict[str, Any]:
    """The search as W&B takes it: without what is ours alone."""
    ours = {"prior_trials", "sampler"}
    return spec.search.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=ours)


def path_of(spec: SweepSpec) -> str:
    """Of the sweep that `wandb.sweepId` names, as far as it is said."""
    entity, project, _ = _names(spec)
    return "/".join(filter(None, (entity, project, _sweep_id(spec))))


def _names(spec: SweepSpec) -> tuple[str, str, str]:
    entity, project, base_url = names_of(spec)
    return entity, project or PROJECT, base_url


def _sweep_id(spec: SweepSpec) -> str:
    assert spec.wandb is not None and spec.wandb.sweep_id is not None, "it attaches"
    return spec.wandb.sweep_id


def _home(
    found: calls.Found,
    entity: str,
    base_url: str,
    *,
    made: bool = False,
    config: Mapping[str, Any] = NOTHING,
) -> Home:
    """entity: that was asked for, where the answer does not say it."""
    entity = found.entity or entity
    url = f"{app_url(base_url)}/{entity}/{found.project}/sweeps/{found.name}"
    return Home(found.name, found.key, entity, found.project, url, made, config)
