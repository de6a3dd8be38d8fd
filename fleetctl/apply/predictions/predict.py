"""All predictions of one apply, and what becomes of them: errors, or warnings where a person said
that what is missing may come later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.apply.change import CONFIGURED, CREATED, Change
from fleetctl.apply.predictions import (
    agreement,
    dependencies,
    endpoints,
    needs,
    policies,
    targets,
)
from fleetctl.apply.predictions.world import Prediction, Sort, World, will_start
from fleetctl.controllers.depends.edges import edges_of
from fleetctl.manifest.problems import ManifestErrors, Problem, joined
from fleetctl.specs.blocks.common import Execution, Part
from fleetctl.specs.blocks.nodes import GangTemplate
from fleetctl.specs.blocks.notify import secrets_in
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.kinds.endpoint import EndpointSpec
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.policy import PolicySpec
from fleetctl.specs.kinds.secret import SecretSpec
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.values.scalars import Spec

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

ANYWAY = "`--allow-missing` stores it all the same"
ANYWAY_SORTS = (Sort.LATER, Sort.CAPACITY)


def worth_a_look(spec: Spec) -> bool:
    """False for what nothing could be predicted of: most work of this machine. A quick look."""
    if not isinstance(spec, Execution):
        return True  # others may name it
    if isinstance(spec, SweepSpec) and spec.backend == "wandb":
        return True
    if needs.library_of(spec) or edges_of(spec) or secrets_in(spec.notify) or spec.queue:
        return True
    return any(map(_worth_a_look, spec.parts()))


def _worth_a_look(part: Part) -> bool:
    placement, template = part.placement, part.template
    if any(
        it.provider != DEFAULT_PROVIDER or it.max_price_per_hour is not None
        for it in placement.candidates
    ):
        return True
    asks = template.image or template.secrets or template.resources.gpu or template.is_function
    named = template.volumes or template.endpoints or template.function
    several = isinstance(template, GangTemplate)
    source = template.source
    lfs = source is not None and source.git is not None and source.git.lfs
    return bool(asks or named or several or lfs or placement.max_price_per_hour is not None)


async def predicted(
    manifests: Sequence[Manifest], changes: Iterable[Change], world: World
) -> list[Prediction]:
    """Of the manifests that would start something new."""
    changes = list(changes)
    starting = {it.key for it in changes if will_start(it)}
    changing = {it.key for it in changes if it.outcome in (CREATED, CONFIGURED)}
    changed = (it for it in manifests if it.key in changing)
    found: list[Prediction] = list(dependencies.circles(changed, world))
    for manifest in manifests:
        if manifest.key not in starting:
            continue
        found.extend(needs.of_notices(manifest, manifest.spec, world))
        if (made := manifest.made()) is not None:
            found.extend(needs.of_notices(made, made.spec, world))
            # Whether there is room for it now says nothing of the night.
            work = await _of_work(made, made.spec, world)
            found.extend(it for it in work if it.sort is not Sort.CAPACITY)
        match manifest.spec:
            case Execution() as spec:
                found.extend(dependencies.of_work(manifest, spec, world))
                found.extend(dependencies.of_results(manifest, spec, world))
                found.extend(await _of_work(manifest, spec, world))
            case FunctionSpec() as spec:
                found.extend(needs.of_function(manifest, spec, world))
                found.extend(agreement.of_function(manifest, spec, world))
                found.extend([it async for it in targets.of_function(manifest, spec, world)])
            case EndpointSpec() as spec:
                found.extend(endpoints.of_endpoint(manifest, spec, world))
            case SecretSpec() as spec:
                found.extend(needs.of_secret(manifest, spec, world))
            case PolicySpec() as spec:
                found.extend(Prediction(manifest, it) for it in policies.wrong_in(spec))
    return found


async def _of_work(manifest: Manifest, spec: Spec, world: World) -> list[Prediction]:
    assert isinstance(spec, Execution)
    found = [
        *needs.of_work(manifest, spec, world),
        *endpoints.of_work(manifest, spec, world),
        *agreement.of_work(manifest, spec, world),
    ]
    return [*found, *[it async for it in targets.of_work(manifest, spec, world)]]


def allowed(request: Mapping[str, object]) -> frozenset[Sort]:
    """What a request says may be stored although it is not there yet."""
    sorts = {Sort.DOUBT}
    if request.get("allowMissing"):
        sorts |= set(ANYWAY_SORTS)
    if request.get("waitForCapacity"):
        sorts.add(Sort.CAPACITY)
    return frozenset(sorts)


def judged(
    found: Sequence[Prediction], may: frozenset[Sort], anyway: str = ANYWAY
) -> tuple[list[Problem], list[str]]:
    """What refuses the whole, and what is only warned about. anyway: how it is stored all the same;
    empty where the verb has no way.
    """
    wrong = [problem for it in found if it.sort not in may for problem in _problems(it)]
    warned = [problem for it in found if it.sort in may for problem in _problems(it)]
    if any(it.sort in ANYWAY_SORTS and it.sort not in may for it in found):
        wrong[-1] = replace(wrong[-1], hint=joined(wrong[-1].hint, anyway))
    return wrong, [joined(str(it), it.hint) for it in warned]


def refuse(found: Sequence[Prediction], may: frozenset[Sort], anyway: str = ANYWAY) -> list[str]:
    """Raises ManifestErrors with what is predicted to be refused; the rest are warnings."""
    wrong, warnings = judged(found, may, anyway)
    if wrong:
        raise ManifestErrors(wrong)
    return warnings


def _problems(prediction: Prediction) -> list[Problem]:
    return prediction.manifest.problems([prediction.finding])
