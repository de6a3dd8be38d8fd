"""Finds specs that their models accept and that can never work, before they are stored.

Called by loader.py with specs that their models accepted. Pure: faults that depend on the store, a
provider or this machine are predicted in engine/predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fleetctl.common.finding import Finding
from fleetctl.manifest.checks import (
    bare_images,
    checkpoints,
    clusters,
    commands,
    credentials,
    image_packages,
    lengths,
    metrics,
    mounts,
    old_retention,
    parameters,
    programs,
    prompts,
    rules,
)
from fleetctl.manifest.checks import variables as environments
from fleetctl.manifest.unread import until_unread
from fleetctl.specs.values.scalars import Spec

_WRONG: tuple[Callable[[Spec], Iterator[Finding]], ...] = (
    programs.find_problems,
    parameters.find_problems,
    commands.find_problems,
    environments.find_problems,
    lengths.wrong,
    mounts.find_problems,
    checkpoints.find_problems,
    rules.find_problems,
    image_packages.find_problems,
    bare_images.find_problems,
    prompts.find_problems,
    credentials.wrong,
    clusters.wrong,
)
_DOUBTFUL: tuple[Callable[[Spec], Iterator[Finding]], ...] = (
    credentials.find_warnings,
    programs.find_warnings,
    programs.never_run,
    image_packages.find_warnings,
    metrics.find_warnings,
    environments.find_warnings,
    clusters.doubtful,
    old_retention.find_old_form,
)


def wrong_in(spec: Spec) -> Iterator[Finding]:
    """Yields mistakes, for which the manifest is refused."""
    for check in _WRONG:
        yield from until_unread(check(spec))


def doubtful_in(spec: Spec) -> Iterator[Finding]:
    """Yields warnings of values that may be meant."""
    for check in _DOUBTFUL:
        yield from check(spec)
