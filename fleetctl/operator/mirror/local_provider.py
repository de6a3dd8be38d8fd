"""Replaces provider `local` in a cluster: by the operator's own container, or another provider.
Pure.

A manifest that runs on a laptop is accepted as it is; the installer of the operator sets once where
its work runs here. Called before an apply; the custom resource itself stays as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetctl.specs.builtin import DEFAULT_PROVIDER

# Lists of candidates, in a placement.
_LISTS = ("ordered", "anyOf")
# Kinds that are kept at one provider, and do no work.
_KEPT = frozenset(("Volume", "Function"))


def replace_local(
    kind: str,
    spec: Mapping[str, Any],
    means: str,
    *,
    runs: bool,
) -> Mapping[str, Any]:
    """Returns the spec with the provider `means` instead of `local` or of an absent provider. runs:
    objects of this kind do work.
    """
    if means == DEFAULT_PROVIDER:
        return spec
    if kind in _KEPT:
        return {**spec, "provider": _replace_name(spec.get("provider"), means)}
    if not runs:
        return spec
    made = dict(spec)
    template = spec.get("template")
    asks = isinstance(template, Mapping) and template.get("prompt") is not None
    if spec.get("placement") is not None or not asks:  # a prompt has a provider of its own
        made["placement"] = _replace_in_placement(spec.get("placement") or {}, means)
    stages = spec.get("stages")
    if isinstance(stages, list):
        made["stages"] = [_replace_in_stage(it, means) for it in stages]
    return made


def _replace_in_stage(stage: Any, means: str) -> Any:
    if not isinstance(stage, Mapping) or not isinstance(stage.get("placement"), Mapping):
        return stage
    return {**stage, "placement": _replace_in_placement(stage["placement"], means)}


def _replace_in_placement(placement: Any, means: str) -> Any:
    if not isinstance(placement, Mapping):
        return placement  # for the model to refuse
    made = dict(placement)
    lists = [name for name in _LISTS if isinstance(made.get(name), list)]
    for name in lists:
        made[name] = _replace_candidates(made[name], means)
    if "provider" in made or not lists:
        made["provider"] = _replace_name(made.get("provider"), means)
    return made


def _replace_candidates(listed: list[Any], means: str) -> list[Any]:
    """Lists each provider once: one that is named beside `local` takes the position of the first of
    both.
    """
    made: list[Any] = []
    seen: set[object] = set()
    for it in listed:
        here = isinstance(it, Mapping) and it.get("provider") == DEFAULT_PROVIDER
        one = {**it, "provider": means} if here else it
        name = one.get("provider") if isinstance(one, Mapping) else None
        if name != means or name not in seen:
            made.append(one)
        seen.add(name)
    return made


def _replace_name(provider: Any, means: str) -> Any:
    if provider in (None, DEFAULT_PROVIDER):
        return means
    return provider
