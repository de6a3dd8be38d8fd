"""Refuses fields that are valid and not supported yet, or that cannot mean what their name
suggests, so that no spec is silently ignored.

Called by loader.py with specs that their models accepted. A line goes when its feature comes.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.finding import Finding, Path
from fleetctl.controllers.kinds.sweep import GRID_POINTS_MAX
from fleetctl.controllers.trials.axes import axes_of
from fleetctl.controllers.trials.command import MACROS, unknown_macros
from fleetctl.controllers.trials.points import count_points
from fleetctl.manifest.hints.synonyms import guess_name, join_names
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.builtin import BUILT_IN, CLUSTER, SORTS
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.settings import NAME as SETTINGS
from fleetctl.specs.kinds.settings import SettingsSpec
from fleetctl.specs.kinds.sweep import AT_WANDB, SweepSpec
from fleetctl.specs.outside import UnusableType, list_types, plugin_from
from fleetctl.specs.values.scalars import Spec

_NOT_YET = " is not supported yet"


def not_yet(metadata: Metadata, spec: Spec) -> Iterator[Finding]:
    match spec:
        case SweepSpec():
            yield from _check_sweep(spec)
        case ProviderSpec():
            yield from _check_provider(metadata.name, spec)
        case SettingsSpec() if metadata.name != SETTINGS:
            at = ("metadata", "name")
            message = f" is `{metadata.name}`; a store has one object of settings, `{SETTINGS}`"
            yield Finding(at, message, f"write `name: {SETTINGS}`")


def _check_provider(name: str, spec: ProviderSpec) -> Iterator[Finding]:
    """Checks a provider's name together with its type, which no model sees."""
    at = ("spec", "type")
    if name in BUILT_IN and spec.type not in (None, name):
        message = f" is `{spec.type}`, and `{name}` is the name of another type"
        yield Finding(at, message, f"name the object otherwise, such as `{spec.type}-team-b`")
    elif name not in BUILT_IN and spec.type is None:
        message = f" is `{name}`, which is not a type of provider"
        hint = f"write `type: ...` in its spec: {join_names(BUILT_IN, last='or')}"
        yield Finding(("metadata", "name"), message, hint)
    elif name not in BUILT_IN and spec.type is not None and spec.type not in BUILT_IN:
        yield from _check_outside_type(spec.type)
    elif name not in BUILT_IN and spec.type is not None and not SORTS[spec.type].accounts:
        message = f" is `{spec.type}`, which is this machine, and there is one"
        yield Finding(at, message, f"name the object `{spec.type}`")
    elif name in BUILT_IN and (block := _block_of_another(name, spec)):
        at = ("spec", block)
        message = f" is for type `{block}`, and `{name}` is another"
        yield Finding(at, message, f"leave it out, or name the object `{block}`")
    elif name in BUILT_IN and name != CLUSTER:
        by_node = spec.prices is not None and spec.prices.node_label is not None
        for given, path in (
            (spec.kubernetes is not None, ("spec", "kubernetes")),
            (by_node, ("spec", "prices", "nodeLabel")),
        ):
            if given:
                message = f" is for clusters, and `{name}` is none"
                yield Finding(path, message, f"leave it out, or name the object `{CLUSTER}`")


def _check_outside_type(sort: str) -> Iterator[Finding]:
    """Checks that an installed package provides the type."""
    try:
        plugin_from(sort)
    except UnusableType as error:
        near = None if error.installed else guess_name(sort, list_types())
        fix = f"did you mean `{near}`? Otherwise {error.fix}" if near else error.fix
        yield Finding(("spec", "type"), f" is `{sort}`: {error.what}", fix)


def _block_of_another(name: str, spec: ProviderSpec) -> str:
    """Returns the block of machines that a built-in provider of another type has; or ""."""
    given = {"ssh": spec.ssh, "slurm": spec.slurm}
    return next((sort for sort, it in given.items() if it is not None and sort != name), "")


def _refuse_custom_method() -> Finding:
    at = ("spec", "search", "method")
    message = " is `custom`, which needs a scheduler of W&B's and is not supported"
    return Finding(at, message, "use `bayes`, `random` or `grid`")


_ELSEWHERE = ("job", "image_uri", "scheduler", "metrics")


def _check_sweep(spec: SweepSpec) -> Iterator[Finding]:
    search = spec.search
    at = ("spec", "search")
    ours = spec.backend == "builtin"
    if search is AT_WANDB:
        return
    if search.method == "custom":
        yield _refuse_custom_method()
    macros = unknown_macros(search.command or ())
    if macros:
        message = f" holds `{macros[0]}`, which is not a W&B macro"
        hint = f"known are {join_names(f'${{{name}}}' for name in MACROS)}"
        yield Finding((*at, "command"), message, hint)
    points = count_points(search) if search.method == "grid" else None
    if ours and points is not None and points > GRID_POINTS_MAX:
        message = f": the grid has more than {GRID_POINTS_MAX:,} points, which is the limit"
        yield Finding((*at, "parameters"), message, "use `random` with `run_cap`")
    if search.method == "bayes" and not axes_of(search.parameters or {})[0]:
        message = ": each parameter has one value, so there is nothing to search"
        hint = "give one of them `values` or `min` and `max`, or use `grid`"
        yield Finding((*at, "parameters"), message, hint)
    for name in _ELSEWHERE:
        if getattr(search, name) is not None:
            yield _make_finding((*at, name), "leave it out")


def _make_finding(
    path: Path,
    hint: str,
    value: str = "",
) -> Finding:
    return Finding(path, (f" is {value}, which" if value else "") + _NOT_YET, hint)
