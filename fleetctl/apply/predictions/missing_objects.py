"""Objects, variables and files that work or a Secret names and that are not there; dependencies
among them, and cycles in which objects would wait for each other for ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fleetctl.apply.draft import NAMED_BY
from fleetctl.apply.predictions.world import PlannedWorld
from fleetctl.common.errors import Unavailable, UsageError
from fleetctl.common.finding import Finding, Path, Severity
from fleetctl.common.install import install_hint
from fleetctl.controllers.depends.edges import (
    BATCH_JOB,
    DEPENDS_ON,
    PRIOR_TRIALS,
    DependencyEdge,
    Node,
    circle_from,
    edges_in,
    edges_of,
    find_requested_results,
)
from fleetctl.controllers.model import Resource
from fleetctl.controllers.trials.prior import describe_circle, find_circle, unfit_prior
from fleetctl.controllers.trials.winner import SWEEP, command_of, unfit_search
from fleetctl.controllers.wandb import HANDS_OVER
from fleetctl.engine.execute.secrets import check_file
from fleetctl.engine.kinds.wandb.wandb_agents import KEY, KEY_HINT
from fleetctl.guest.task.parameters import name_variable, one_variable
from fleetctl.manifest.checks.spec_parts import list_parameters
from fleetctl.manifest.hints.synonyms import guess_name
from fleetctl.manifest.rules import yield_until_unread
from fleetctl.providers.uv import PASSWORD
from fleetctl.specs.blocks.common import ParamsFrom, WorkPart, WorkSpec
from fleetctl.specs.blocks.notify import Notify, secrets_in
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.registry import KINDS, parse_spec
from fleetctl.specs.kinds.secret import SecretSpec
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.kinds.trainingrun import STAGE, TrainingRunSpec
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, object_key
from fleetctl.specs.values.scalars import Spec
from fleetctl.stores.read.query import SUCCEEDED, check_condition
from fleetctl.tracking.annotations import needs_command, waits_for

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


VOLUME = "Volume"
# For each computed search: the field that selects it, its value, and the extra.
_SUGGEST = {
    "numpy": (("method",), "bayes", "bayes"),
    "optuna": (("sampler", "name"), "tpe", "optuna"),
}

QUEUE = "Queue"


def of_work(
    manifest: Manifest,
    spec: WorkSpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    if (library := library_of(spec)) and find_spec(library) is None:
        field, value, extra = _SUGGEST[library]
        path: Path = ("spec", "search", *field)
        message = f" is `{value}`, which needs {library}, and that is not installed here"
        yield Finding(path, message, install_hint(extra))
    yield from _check_params_sweep(manifest, spec, world)
    yield from _check_prior_sweep(manifest, spec, world)
    if isinstance(spec, SweepSpec) and spec.backend == "wandb":
        yield from _wandb_key(manifest, spec, world)
    for part in spec.parts():
        template = part.template
        places = [it.provider for it in part.placement.candidates]
        yield from _check_secrets(
            manifest,
            part.at("secrets"),
            template.secrets,
            places,
            world,
        )
        yield from _check_volumes(manifest, part, world)

        index = template.image.pip_index if template.image is not None else None
        if index is not None and index.secret is not None:
            place: Path = (*part.at("image"), "pipIndex", "secret")
            yield from predict_missing(
                manifest,
                place,
                "Secret",
                index.secret,
                world,
            )
            yield from _index_login(
                manifest,
                place,
                index.secret,
                places,
                world,
            )
        if template.function is not None and not part.own:
            yield from _check_function(manifest, template.function, world)


def _check_function(
    manifest: Manifest,
    name: str,
    world: PlannedWorld,
) -> Iterator[Finding]:
    """Yields the Function of a template if it is missing, or if it serves and runs no task."""
    at: Path = ("spec", "template", "function")
    yield from predict_missing(
        manifest,
        at,
        "Function",
        name,
        world,
    )
    found = world.found("Function", name, manifest.namespace)
    if found is not None and json.loads(found.spec).get("port") is not None:
        message = f" is `{name}`, which has a `port`: it runs no task"
        hint = "name it in an Endpoint's `servers`, or give the tasks another Function"
        yield Finding(at, message, hint)


def of_notices(
    manifest: Manifest,
    spec: Spec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    """Yields missing Secrets of `notify`: without notices, their absence would go unnoticed until
    the work has ended."""
    notify: tuple[Notify, ...] = getattr(spec, "notify", ())
    for number, way, name in secrets_in(notify):
        at: Path = ("spec", "notify", number, way, "secret")
        yield from predict_missing(
            manifest,
            at,
            "Secret",
            name,
            world,
        )


def _check_volumes(
    manifest: Manifest,
    part: WorkPart,
    world: PlannedWorld,
) -> Iterator[Finding]:
    """Yields volumes that are created because no manifest declares them, and have almost the name
    of an existing one: a checkpoint in the wrong volume is not found, and work begins from zero.
    """
    for number, mount in enumerate(part.template.volumes):
        if not _is_made(world.found(VOLUME, mount.name, manifest.namespace)):
            continue
        within = (it for it in world.named(VOLUME) if it[1] == manifest.namespace)
        others = [name for name, space in within if not _is_made(world.found(VOLUME, name, space))]
        near = get_close_matches(mount.name, others, 1)
        if near:
            at: Path = (*part.at("volumes"), number, "name")
            message = f" is `{mount.name}`: no such volume is there, so an empty one is made"
            hint = f"did you mean `{near[0]}`?"
            yield Finding(at, message, hint, severity=Severity.DOUBT)


def _is_made(volume: Resource | None) -> bool:
    """Returns true where this very apply creates it, because a template names it."""
    return volume is not None and not volume.version and NAMED_BY in volume.annotations


def _check_params_sweep(
    manifest: Manifest,
    spec: WorkSpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    """Yields sweeps whose best trial should give the parameters, and that can never have one."""
    wanted: ParamsFrom | None = getattr(spec, "params_from", None)
    if wanted is None:
        return
    at: Path = ("spec", "paramsFrom", "sweep")
    yield from predict_missing(
        manifest,
        at,
        SWEEP,
        wanted.sweep,
        world,
    )
    sweep = world.found(SWEEP, wanted.sweep, manifest.namespace)
    if sweep is None:
        return
    document = json.loads(sweep.spec)
    if unfit := unfit_search(document):
        message = f" is `{wanted.sweep}`, which {unfit}"
        hint = "name a sweep with one `metric`"
        yield Finding(at, message, hint)
    if needs_command(spec) and not command_of(document):
        message = f" is `{wanted.sweep}`, whose search has no `program` or `command` to run here"
        hint = "write what to run in `template`: `python`, `command` or `script`"
        yield Finding(at, message, hint)
    yield from _without_arguments(spec, wanted.sweep, document)
    if isinstance(spec, TrainingRunSpec) and STAGE in document["search"].get("parameters", {}):
        message = f" is `{wanted.sweep}`, which searches `{STAGE}`, and that names a stage here"
        yield Finding(at, message, "give its parameter another name")
    yield from _one_variable(
        spec,
        at,
        wanted.sweep,
        document,
    )


def _one_variable(
    spec: WorkSpec,
    at: Path,
    sweep: str,
    document: Mapping[str, Any],
) -> Iterator[Finding]:
    """Yields parameters of the sweep, and of the tasks beside it, that a program could not
    distinguish. One that gets them as arguments can.
    """
    if needs_command(spec):
        return
    own = list(dict.fromkeys(name for _, name in list_parameters(spec)))
    given = [name for name in document["search"].get("parameters") or () if name not in own]
    one, other = one_variable([*own, *given])
    if one:
        message = f" is `{sweep}`, whose `{other}` is the variable `{name_variable(one)}`"
        message += f", and so is `{one}`"
        yield Finding(at, message, "name one of them otherwise")


def _without_arguments(
    spec: WorkSpec,
    sweep: str,
    document: Mapping[str, Any],
) -> Iterator[Finding]:
    """Yields a command without the arguments by which the sweep passes parameters to its program:
    the same program would then run with its own defaults.
    """
    if not any(map(HANDS_OVER.search, command_of(document))):
        return
    program = str(document["search"].get("program") or "")
    for part in spec.parts():
        text = " ".join([*(part.template.command or ()), part.template.script or ""])
        if program and program in text and not HANDS_OVER.search(text):
            at = part.at("command" if part.template.command else "script")
            message = (
                f" has no `${{args}}`, by which sweep/{sweep} hands its program the parameters"
            )
            hint = "add `${args}`, or leave the command out: then the sweep's own runs"
            yield Finding(at, message, hint, severity=Severity.DOUBT)


def _check_prior_sweep(
    manifest: Manifest,
    spec: WorkSpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    """Yields sweeps whose trials should warm the search, and never can. Missing sweeps are waited
    for."""
    search = spec.search if isinstance(spec, SweepSpec) else None
    if search is None or search.prior_trials is None or search.metric is None:
        return
    name = search.prior_trials.from_sweep
    at: Path = ("spec", "search", "priorTrials", "fromSweep")

    def next_of(text: str) -> str:
        return waits_for(world.found(SWEEP, text, manifest.namespace))

    if names := find_circle(manifest.name, next_of):
        message = (
            f" is `{name}`; sweep/{manifest.name} {describe_circle(names)}, so none of them begins"
        )
        hint = "take `priorTrials` out of one of them"
        yield Finding(at, message, hint)
        return
    sweep = world.found(SWEEP, name, manifest.namespace)
    if sweep is None:
        yield from predict_missing(
            manifest,
            at,
            SWEEP,
            name,
            world,
            Severity.DOUBT,
        )
    elif unfit := unfit_prior(json.loads(sweep.spec), search.metric.name):
        hint = "name a sweep with the same `metric`"
        yield Finding(at, f" is `{name}`, which {unfit}", hint)


def _wandb_key(
    manifest: Manifest,
    spec: SweepSpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    """The controller is W&B's agent, so it needs the key that the trials have."""
    names = spec.template.secrets if spec.template is not None else ()
    found = [world.found("Secret", name, manifest.namespace) for name in names]
    if None in found:
        return  # reported at the field that names it
    specs = [parse_spec("Secret", it.spec) for it in found if it is not None]
    secrets = [it for it in specs if isinstance(it, SecretSpec)]
    if any(KEY in it.from_env or KEY in it.from_file for it in secrets):
        return
    message = f" is `wandb`, which needs {KEY}, and no Secret in `template.secrets` gives it"
    if any(it.from_provider is not None for it in secrets):
        message += "; what a provider keeps is not known to the controller"
    at: Path = ("spec", "backend")
    yield Finding(at, message, KEY_HINT, severity=Severity.LATER)


def library_of(spec: Spec) -> str:
    """Returns the module that computes the points of a search; "" without such a search."""
    if not isinstance(spec, SweepSpec) or spec.search.method != "bayes":
        return ""
    if spec.backend == "wandb":
        return ""
    if spec.search.sampler is None:
        return "numpy"
    return "optuna"


def of_function(
    manifest: Manifest,
    spec: FunctionSpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    yield from _check_secrets(
        manifest,
        ("spec", "secrets"),
        spec.secrets,
        [spec.provider],
        world,
    )


def of_secret(
    manifest: Manifest,
    spec: SecretSpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    for number, name in enumerate(spec.from_env):
        at: Path = ("spec", "fromEnv", number)
        if barred := world.bars(name, manifest.namespace):
            what = f" is `{name}`, {barred.why}"
            yield Finding(at, what, barred.fix, Severity.LATER)
        elif not world.lookup(name):
            hint = f"export {name}=... and run this again from that shell"
            yield Finding(at, f" is `{name}`, which is not set", hint, severity=Severity.LATER)
    for name, path in spec.from_file.items():
        try:
            check_file(manifest.name, path)
        except Unavailable as error:
            at = ("spec", "fromFile", name)
            message = f": {str(error).removeprefix(f'secret/{manifest.name}: ')}"
            yield Finding(at, message, error.hint, severity=Severity.LATER)


def _check_secrets(
    manifest: Manifest,
    within: Path,
    names: tuple[str, ...],
    places: list[str],
    world: PlannedWorld,
) -> Iterator[Finding]:
    for number, name in enumerate(names):
        at: Path = (*within, number)
        yield from predict_missing(
            manifest,
            at,
            "Secret",
            name,
            world,
        )
        resource = world.found("Secret", name, manifest.namespace)
        if resource is None:
            continue
        spec = SecretSpec.model_validate_json(resource.spec)
        if spec.from_provider is not None and all(map(world.keeps_no_secrets, places)):
            here = " and ".join(f"`{place}`" for place in places)
            message = f" is `{name}`, whose value its provider keeps, and {here} gives work none"
            hint = "use `fromEnv` or `fromFile` in the Secret, or place the work elsewhere"
            yield Finding(at, message, hint)
        unset = [it for it in spec.from_env if not world.lookup(it)] if world.starts_here else []
        if unset and resource.uid and resource.status:  # a new one is reported at its own field
            message = f" is `{name}`, which needs {', '.join(unset)}, and the controller has none"
            hint = f"export {unset[0]}=... and run this again from that shell"
            yield Finding(at, message, hint, severity=Severity.LATER)


def _index_login(
    manifest: Manifest,
    at: Path,
    name: str,
    places: list[str],
    world: PlannedWorld,
) -> Iterator[Finding]:
    """Yields the prediction for a Secret that no provider can pass to the package installer."""
    resource = world.found("Secret", name, manifest.namespace)
    if resource is None:
        return
    spec = SecretSpec.model_validate_json(resource.spec)
    kept = spec.from_provider is not None
    ways = {it: world.providers[it].contract for it in places if it in world.providers}
    if not ways or any(it.keeps_index_login == kept for it in ways.values()):
        return
    here = " and ".join(f"`{place}`" for place in ways)
    message = f" is `{name}`, whose value its provider keeps, and {here} cannot ask an index by it"
    hint = "use `fromEnv` or `fromFile` in the Secret"
    if not kept:
        message = (
            f" is `{name}`, and {here} takes the password of an index from a Secret of its own"
        )
        hint = (
            f"`kubectl create secret generic {name} -n NAMESPACE --from-literal={PASSWORD}=...`,"
            f" and `fromProvider: {name}` in place of its variables"
        )
    yield Finding(at, message, hint)


def predict_missing(
    manifest: Manifest,
    at: Path,
    kind: str,
    name: str,
    world: PlannedWorld,
    severity: Severity = Severity.LATER,
) -> Iterator[Finding]:
    namespace = manifest.namespace if KINDS[kind].namespaced else DEFAULT_NAMESPACE
    if world.found(kind, name, namespace) is not None:
        return
    there = world.named(kind)
    near = guess_name(name, [it for it, within in there if within == namespace])
    elsewhere = next((within for it, within in there if it == name), "")
    message = f" is `{name}`, and there is no {kind} of that name"
    hint = f"apply a `kind: {kind}` of that name, before it or in the same file"
    if elsewhere:
        message += f" in namespace `{namespace}`"
        hint = f"there is one in `{elsewhere}`; each namespace has its own"
    elif near:
        hint = f"did you mean `{near}`?"
    yield Finding(at, message, hint, severity)


def check_dependencies(
    manifest: Manifest,
    spec: WorkSpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    """Yields missing dependencies. The work waits for them, so they are only warnings."""
    for number, dependency in enumerate(spec.depends_on):
        at: Path = ("spec", "dependsOn", number, dependency.field)
        yield from predict_missing(
            manifest,
            at,
            dependency.kind,
            dependency.name,
            world,
            Severity.DOUBT,
        )
    if spec.queue is not None:
        yield from predict_missing(
            manifest,
            ("spec", "queue"),
            QUEUE,
            spec.queue,
            world,
            Severity.DOUBT,
        )


def of_results(
    manifest: Manifest,
    spec: WorkSpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    """Yields missing sources of results, for which the work waits, and conditions that can never
    choose a result."""
    given = find_requested_results(spec)
    if given is None:
        return
    at: Path = ("spec", "tasks", "fromResults", "job")
    yield from predict_missing(
        manifest,
        at,
        BATCH_JOB,
        given.job,
        world,
        Severity.DOUBT,
    )
    try:
        check_condition(given.where or SUCCEEDED)
    except UsageError as error:
        at = ("spec", "tasks", "fromResults", "where")
        yield Finding(at, f": {error}", error.hint)


def find_cycles(
    manifests: Iterable[Manifest], world: PlannedWorld
) -> Iterator[tuple[Manifest, Finding]]:
    """Yields each circle once, at the first of its edges that is written here."""
    told: set[frozenset[Node]] = set()
    for manifest in manifests:
        if not isinstance(manifest.spec, WorkSpec):
            continue
        path = _find_cycle(manifest, world)
        if path and frozenset(path) not in told:
            for it in yield_until_unread(_describe_cycle(manifest, manifest.spec, path)):
                told.add(frozenset(path))
                yield manifest, it


def _find_cycle(manifest: Manifest, world: PlannedWorld) -> list[Node]:
    def next_of(node: Node) -> list[Node]:
        return [it.node for it in _list_edges(node, manifest, world)]

    path = circle_from((manifest.kind, manifest.name), next_of)
    if all(_find_via(one, two, manifest, world) == PRIOR_TRIALS for one, two in _pair_nodes(path)):
        return []  # reported as a search that needs another
    return path


def _describe_cycle(
    manifest: Manifest,
    spec: WorkSpec,
    path: list[Node],
) -> Iterator[Finding]:
    keys = [object_key(*node, manifest.namespace) for node in (*path, path[0])]
    message = f" makes a cycle: {' -> '.join(keys)}; none of them would ever begin"
    second = [*path, path[0]][1]
    edge = next((it for it in edges_of(spec) if it.node == second), None)
    # Without one, the cycle is that of another manifest, which declares the same object again.
    if edge is not None:
        at = _locate_edge(edge, spec)
        yield Finding(at, message, "take one of these dependencies out")


def _list_edges(
    node: Node,
    manifest: Manifest,
    world: PlannedWorld,
) -> list[DependencyEdge]:
    row = world.found(*node, manifest.namespace)
    if row is not None:
        return edges_in(json.loads(row.spec))
    return []


def _pair_nodes(path: list[Node]) -> list[tuple[Node, Node]]:
    return list(zip(path, [*path[1:], *path[:1]], strict=True))


def _find_via(
    one: Node,
    two: Node,
    manifest: Manifest,
    world: PlannedWorld,
) -> str:
    return next((it.via for it in _list_edges(one, manifest, world) if it.node == two), "")


def _locate_edge(edge: DependencyEdge, spec: WorkSpec) -> Path:
    if edge.via == DEPENDS_ON:
        number, it = next(
            (number, it) for number, it in enumerate(spec.depends_on) if it.node == edge.node
        )
        return ("spec", "dependsOn", number, it.field)
    return ("spec", *edge.via.split("."))
