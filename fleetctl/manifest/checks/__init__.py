"""What a spec says that its models accept and that can never work, found before it is stored.

Called by loader.py with specs that their models accepted. Pure: what hangs on the store, a provider
or this machine is predicted in engine/predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fleetctl.manifest.checks import (
    checkpoints,
    commands,
    credentials,
    images,
    metrics,
    mounts,
    parameters,
    programs,
    prompts,
    rules,
)
from fleetctl.manifest.checks import variables as environments
from fleetctl.manifest.messages import Finding
from fleetctl.specs.values.scalars import Spec

_WRONG: tuple[Callable[[Spec], Iterator[Finding]], ...] = (
    programs.wrong,
    parameters.wrong,
    commands.wrong,
    environments.wrong,
    mounts.wrong,
    checkpoints.wrong,
    rules.wrong,
    images.wrong,
    prompts.wrong,
)
_DOUBTFUL: tuple[Callable[[Spec], Iterator[Finding]], ...] = (
    credentials.doubtful,
    programs.doubtful,
    programs.never_run,
    images.doubtful,
    metrics.doubtful,
    environments.doubtful,
)


def wrong_in(spec: Spec) -> Iterator[Finding]:
    """Mistakes: the manifest is refused."""
    for check in _WRONG:
        yield from check(spec)


def doubtful_in(spec: Spec) -> Iterator[Finding]:
    """What may be meant, and is warned about."""
    for check in _DOUBTFUL:
        yield from check(spec)
