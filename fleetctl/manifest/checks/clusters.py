"""Finds values of a manifest that kubectl, helm, kustomize, Argo CD and Flux read otherwise than we
do.

They read YAML 1.1, where `y`, `yes` and `on` are true. A key of a mapping that its author names is
warned about without quotes, because it would be another one in a cluster; quoted it is the same to
all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fleetctl.common.finding import Finding, Path, Severity
from fleetctl.manifest.checks import spec_parts
from fleetctl.manifest.problems import shorten_text
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.notify import Notify
from fleetctl.specs.kinds.endpoint import EndpointSpec
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec
from fleetctl.specs.values.scalars import Spec, WhenSpec

TRUTHS = frozenset(("true", "false"))
# Names of mappings with keys of the author's choice; and the name of lists of such mappings.
_NAMED = frozenset(("matrix", "parameters", "env", "labels", "annotations", "matchLabels"))
_LISTED = "items"


def find_problems(spec: Spec) -> Iterator[Finding]:
    """Yields parameters whose names are kubectl's reading of `y` and `on`."""
    for path, name in spec_parts.list_parameters(spec):
        if name in TRUTHS:
            text = f": the parameter `{name}` is what kubectl makes of a key such as `y` or `on`"
            hint = 'put the key into quotes, such as `"y":`, or name it otherwise'
            yield Finding(path, text, hint, at_key=True, about=path[:3])


def find_old_words(paths: Iterable[Path]) -> Iterator[Finding]:
    """Yields one warning for the keys of a document that YAML 1.1 reads as true or false.

    paths: the keys, which have no quotes. fleetctl reads them as texts, and a parameter `n` is
    common; kubectl, helm and Argo CD would change it, so a file for these tools needs quotes.
    """
    named = [
        path
        for path in sorted(paths, key=str)
        if (path[-2:-1] and path[-2] in _NAMED) or (len(path) > 2 and path[-3] == _LISTED)
    ]
    if named:
        path = named[0]
        names = list(dict.fromkeys(str(it[-1]) for it in named))
        name = shorten_text(names[0])
        more = f", as are {len(names) - 1} more" if len(names) > 1 else ""
        text = f": the key `{name}` is true or false to kubectl, helm and Argo CD{more}"
        hint = f'for a cluster put it into quotes, `"{name}":`, or name it otherwise'
        yield Finding(path, text, hint, at_key=True, about=path[:-1])


def find_doubts(spec: Spec) -> Iterator[Finding]:
    """Yields uses of the old name `on` for `when`, which clusters read as true without quotes."""
    for path, block in _when_blocks(spec):
        if getattr(block, "on", None) is not None:
            hint = "call it `when`"
            text = " is the old name of `when`; kubectl reads it as `true`"
            yield Finding((*path, "on"), text, hint, Severity.DOUBT, at_key=True)


def _when_blocks(spec: Spec) -> Iterator[tuple[Path, WhenSpec]]:
    sinks: tuple[Notify, ...] = getattr(spec, "notify", ())
    for number, sink in enumerate(sinks):
        yield ("spec", "notify", number), sink
    if isinstance(spec, EndpointSpec):
        yield ("spec", "retry"), spec.retry
    if isinstance(spec, WorkSpec):
        yield ("spec", "placement", "spillOver"), spec.placement.spill_over
    if isinstance(spec, TrainingRunSpec):
        for number, stage in enumerate(spec.named_parts):
            if stage.placement is not None:
                at = ("spec", f"{spec.noun}s", number, "placement", "spillOver")
                yield at, stage.placement.spill_over
