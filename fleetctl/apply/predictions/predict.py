"""All predictions for an apply, sorted into errors and warnings: a warning where the user allows
that a missing object comes later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.apply.change import CONFIGURED, CREATED, Change
from fleetctl.apply.predictions import (
    agreement,
    dependencies,
    endpoint_needs,
    missing_objects,
    policies,
    sources,
    targets,
)
from fleetctl.apply.predictions.world import Certainty, PlannedWorld, Prediction, will_start
from fleetctl.controllers.depends.edges import edges_of
from fleetctl.manifest.problems import ManifestProblem, PredictedErrors, join_sentences
from fleetctl.specs.blocks.common import WorkPart, WorkSpec
from fleetctl.specs.blocks.nodes import GangTemplate
from fleetctl.specs.blocks.notify import secrets_in
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.kinds.endpoint import EndpointSpec
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.policy import PolicySpec
from fleetctl.specs.kinds.secret import SecretSpec
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.values.scalars import Spec
from fleetctl.tracking.source_state import SourceState

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

ANYWAY = "`--allow-missing` stores it all the same"
ANYWAY_SORTS = (Certainty.LATER, Certainty.CAPACITY)


def worth_a_look(spec: Spec, looked: SourceState | None = None) -> bool:
    """Returns false for a spec without possible predictions: most work of this machine. A quick
    look. looked: the present state of its source.
    """
    if looked is not None and looked.pointers:
        return True
    if not isinstance(spec, WorkSpec):
        return True  # others may name it
    if isinstance(spec, SweepSpec) and spec.backend == "wandb":
        return True
    if missing_objects.library_of(spec) or edges_of(spec) or secrets_in(spec.notify) or spec.queue:
        return True
    return any(map(_worth_a_look, spec.parts()))


def _worth_a_look(part: WorkPart) -> bool:
    placement = part.placement
    template = part.template
    if any(
        it.provider != DEFAULT_PROVIDER or it.max_price_per_hour is not None
        for it in placement.candidates
    ):
        return True
    asks = template.image or template.secrets or template.resources.gpu or template.is_function
    refused = template.network is not None or template.kubernetes is not None
    named = template.volumes or template.endpoints or template.function
    several = isinstance(template, GangTemplate)
    source = template.source
    lfs = source is not None and source.git is not None and source.git.lfs
    return bool(
        asks or refused or named or several or lfs or placement.max_price_per_hour is not None
    )


async def make_predictions(
    manifests: Sequence[Manifest],
    changes: Iterable[Change],
    world: PlannedWorld,
) -> list[Prediction]:
    """Yields the predictions on the manifests that would start something new."""
    changes = list(changes)
    starting = {it.key for it in changes if will_start(it)}
    changing = {it.key for it in changes if it.outcome in (CREATED, CONFIGURED)}
    changed = (it for it in manifests if it.key in changing)
    found: list[Prediction] = list(dependencies.find_cycles(changed, world))
    for manifest in manifests:
        if manifest.key not in starting:
            continue
        found.extend(missing_objects.of_notices(manifest, manifest.spec, world))
        found.extend(sources.of_source(manifest, world.looked.get(manifest.key, SourceState())))
        if (made := manifest.made()) is not None:
            found.extend(missing_objects.of_notices(made, made.spec, world))
            # Whether there is room for it now does not show if there is room at night.
            work = await _of_work(made, made.spec, world)
            found.extend(it for it in work if it.sort is not Certainty.CAPACITY)
        match manifest.spec:
            case WorkSpec() as spec:
                found.extend(dependencies.of_work(manifest, spec, world))
                found.extend(dependencies.of_results(manifest, spec, world))
                found.extend(await _of_work(manifest, spec, world))
            case FunctionSpec() as spec:
                found.extend(missing_objects.of_function(manifest, spec, world))
                found.extend(agreement.of_function(manifest, spec, world))
                found.extend([it async for it in targets.of_function(manifest, spec, world)])
            case EndpointSpec() as spec:
                found.extend(endpoint_needs.of_endpoint(manifest, spec, world))
            case SecretSpec() as spec:
                found.extend(missing_objects.of_secret(manifest, spec, world))
            case PolicySpec() as spec:
                found.extend(Prediction(manifest, it) for it in policies.wrong_in(spec))
    return found


async def _of_work(
    manifest: Manifest,
    spec: Spec,
    world: PlannedWorld,
) -> list[Prediction]:
    assert isinstance(spec, WorkSpec)
    found = [
        *missing_objects.of_work(manifest, spec, world),
        *endpoint_needs.of_work(manifest, spec, world),
        *agreement.of_work(manifest, spec, world),
    ]
    return [*found, *[it async for it in targets.of_work(manifest, spec, world)]]


def read_allowed(request: Mapping[str, object]) -> frozenset[Certainty]:
    """Returns the sorts of missing objects that a request allows to be stored."""
    sorts = {Certainty.DOUBT}
    if request.get("allowMissing"):
        sorts |= set(ANYWAY_SORTS)
    if request.get("waitForCapacity"):
        sorts.add(Certainty.CAPACITY)
    return frozenset(sorts)


def split_predictions(
    found: Sequence[Prediction],
    may: frozenset[Certainty],
    anyway: str = ANYWAY,
) -> tuple[list[ManifestProblem], list[str]]:
    """Returns the errors that refuse the whole apply, and the warnings. anyway: how to store it all
    the same; empty where the verb has no way.
    """
    wrong = [problem for it in found if it.sort not in may for problem in _list_problems(it)]
    warned = [problem for it in found if it.sort in may for problem in _list_problems(it)]
    if any(it.sort in ANYWAY_SORTS and it.sort not in may for it in found):
        wrong[-1] = replace(wrong[-1], hint=join_sentences(wrong[-1].hint, anyway))
    return wrong, [join_sentences(str(it), it.hint) for it in warned]


def raise_if_refused(
    found: Sequence[Prediction],
    may: frozenset[Certainty],
    anyway: str = ANYWAY,
) -> list[str]:
    """Raises PredictedErrors with the predicted refusals; returns the rest as warnings."""
    wrong, warnings = split_predictions(found, may, anyway)
    if wrong:
        raise PredictedErrors(wrong)
    return warnings


def _list_problems(prediction: Prediction) -> list[ManifestProblem]:
    return prediction.manifest.problems([prediction.finding])
