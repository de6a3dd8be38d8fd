"""All predictions for an apply, sorted into errors and warnings: a warning where the user already
runs the object that way.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.apply.change import CONFIGURED, CREATED, Change
from fleetctl.apply.policies.expressions import ExpressionError, compile_expression
from fleetctl.apply.policies.typecheck import check_types
from fleetctl.apply.predictions import missing_objects
from fleetctl.apply.predictions.world import PlannedWorld, Prediction, will_start
from fleetctl.common.finding import Finding, Path, Severity
from fleetctl.controllers.depends.edges import edges_of
from fleetctl.manifest.document.inner_manifest import AT
from fleetctl.manifest.problems import ManifestProblem, join_sentences, sort_problems
from fleetctl.manifest.rules import Check, RuleLevel, checks_for, stop_at_unread
from fleetctl.specs.blocks.common import WorkPart, WorkSpec
from fleetctl.specs.blocks.nodes import GangTemplate
from fleetctl.specs.blocks.notify import secrets_in
from fleetctl.specs.blocks.template import GitSource
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.policy import PolicySpec
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.values.scalars import Spec
from fleetctl.tracking.manifest_sources import source_of
from fleetctl.tracking.source_state import SourceState, names_text

if TYPE_CHECKING:
    from fleetctl.apply.policies.expressions import CompiledExpression
    from fleetctl.manifest import Manifest


ANYWAY = "`--allow-missing` stores it all the same"
ANYWAY_SORTS = (Severity.LATER, Severity.CAPACITY)

POLICY = "Policy"


def is_worth_a_look(spec: Spec, looked: SourceState | None = None) -> bool:
    """Returns false for a spec without possible predictions: most work of this machine. A quick
    look. looked: the present state of its source.
    """
    if looked is not None and looked.pointers:
        return True
    if not isinstance(spec, WorkSpec):
        return True  # others may name it
    if isinstance(spec, SweepSpec) and (
        spec.backend == "wandb" or missing_objects.library_of(spec)
    ):
        return True
    if edges_of(spec) or (spec.notify and secrets_in(spec.notify)) or spec.queue:
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


# The rules that need more than the text of a manifest.
_LEVELS = (RuleLevel.STORE, RuleLevel.PROVIDER, RuleLevel.POLICY)


async def make_predictions(
    manifests: Sequence[Manifest],
    changes: Iterable[Change],
    world: PlannedWorld,
) -> list[Prediction]:
    """Returns the findings of all rules on the manifests that would start something new."""
    changes = list(changes)
    manifests = [it.as_read() for it in manifests]
    starting = {it.key for it in changes if will_start(it)}
    changing = {it.key for it in changes if it.outcome in (CREATED, CONFIGURED)}
    changed = (it for it in manifests if it.key in changing)
    found = [Prediction(*it) for it in missing_objects.find_cycles(changed, world)]
    for manifest in manifests:
        if manifest.key not in starting:
            continue
        for check in checks_for(manifest.spec, *_LEVELS):
            found += await _apply_check(check, manifest, world)
        with stop_at_unread():
            if (made := manifest.made()) is not None:
                # Capacity for it now does not show if there is any when it is made.
                for check in checks_for(made.spec, *_LEVELS, made=True):
                    later = await _apply_check(check, made, world)
                    found += (it for it in later if it.severity is not Severity.CAPACITY)
    return found


async def _apply_check(
    check: Check,
    manifest: Manifest,
    world: PlannedWorld,
) -> list[Prediction]:
    """Returns the findings of a check, until it comes to a value that could not be read."""
    made: list[Prediction] = []
    with stop_at_unread():
        found = check(manifest, manifest.spec, world)
        if isinstance(found, AsyncIterable):
            async for it in found:
                made.append(Prediction(manifest, it))
        else:
            made.extend(Prediction(manifest, it) for it in found)
    return made


def read_allowed(request: Mapping[str, object]) -> frozenset[Severity]:
    """Returns the sorts of missing objects that a request allows to be stored."""
    sorts = {Severity.DOUBT}
    if request.get("allowMissing"):
        sorts |= set(ANYWAY_SORTS)
    if request.get("waitForCapacity"):
        sorts.add(Severity.CAPACITY)
    return frozenset(sorts)


def split_predictions(
    found: Sequence[Prediction],
    may: frozenset[Severity],
    anyway: str = ANYWAY,
) -> tuple[list[ManifestProblem], list[str]]:
    """Returns the errors that refuse the whole apply, and the warnings. anyway: how to store it all
    the same; empty where the verb has no way.
    """
    wrong = [problem for it in found if it.severity not in may for problem in it.problems()]
    warned = [problem for it in found if it.severity in may for problem in it.problems()]
    wrong = sort_problems(wrong, [it.manifest for it in found])
    if wrong and all(it.severity in ANYWAY_SORTS for it in wrong):
        wrong[-1] = replace(wrong[-1], hint=join_sentences(wrong[-1].hint, anyway))
    return wrong, [join_sentences(str(it), it.hint) for it in warned]


def of_source(
    manifest: Manifest,
    spec: Spec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    looked = world.looked.get(manifest.key, SourceState())
    written = manifest.filed or manifest
    source = source_of(written.spec)
    if source is None or not looked.pointers:
        return
    above = ("spec",) if isinstance(written.spec, FunctionSpec) else ("spec", "template")
    if written.made() is not None:
        above = (*AT, *above)
    count = looked.pointer_count
    files = "1 file is" if count == 1 else f"{count:,} files are"
    shown = names_text(looked.pointers)
    message = f": {files} kept by Git LFS, and tasks would get a pointer in place of each: {shown}"
    if source.git is not None:
        at: Path = (*above, "source", "git")
        hint = "add `lfs: true` there, or `lfs: false` where pointers will do"
        meant = _pointers_will_do(source.git)
    else:
        at = (*above, "source", "path")
        meant = False
        hint = (
            "`git lfs pull` in that directory, or leave them out by `exclude`;"
            " of a Source `git.lfs: true` brings them"
        )
    severity = Severity.DOUBT if meant else Severity.NEVER
    yield Finding(at, message, "" if meant else hint, severity)


def _pointers_will_do(source: GitSource) -> bool:
    """Returns true where the manifest has `lfs: false`."""
    return "lfs" in source.model_fields_set


def of_policy(
    manifest: Manifest,
    spec: PolicySpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    return find_wrong(spec)


def find_wrong(spec: PolicySpec) -> Iterator[Finding]:
    """Yields the expressions that are invalid. Raises Refused where the library of CEL is not
    installed."""
    kinds = spec.match.kinds or tuple(it for it in KINDS if it != POLICY)
    for number, rule in enumerate(spec.rules):
        here: Path = ("spec", "rules", number)
        yield from _check_expression(rule.expression, (*here, "expression"), kinds)
        if rule.message_expression is not None:
            yield from _check_expression(
                rule.message_expression, (*here, "messageExpression"), kinds
            )


def _check_expression(
    text: str,
    at: Path,
    kinds: Sequence[str],
) -> Iterator[Finding]:
    try:
        _: CompiledExpression = compile_expression(text)
        check_types(text, kinds)
    except ExpressionError as error:
        yield Finding(at, f" is not an expression: {error}", error.hint)
