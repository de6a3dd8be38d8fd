"""Checks the envelope of a spec: `apiVersion`, `kind` and the rest, chooses its namespace, finds
files that are no manifest or too long to be meant, and refuses fields that are not supported
yet.

Long lists are refused here, before a model lists every entry that is wrong; long mappings are
refused as they are read, by reader.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.common.finding import Finding, Path
from fleetctl.controllers.kinds.sweep import GRID_POINTS_MAX
from fleetctl.controllers.trials.axes import axes_of
from fleetctl.controllers.trials.command import MACROS, unknown_macros
from fleetctl.controllers.trials.points import count_points
from fleetctl.manifest.findings import suggest_name
from fleetctl.manifest.hints.fields import RENDERED_KINDS
from fleetctl.manifest.hints.synonyms import NOT_YET_KINDS, SYNONYMOUS_KINDS, guess_name, join_names
from fleetctl.manifest.problems import PROBLEMS_SHOWN_MAX, escape_text, value_text
from fleetctl.specs.blocks.common import Metadata, WorkSpec
from fleetctl.specs.builtin import BUILT_IN, CLUSTER, SORTS, UnusableType, list_types, plugin_from
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import API_VERSION, KINDS, Kind, kind_called
from fleetctl.specs.kinds.schedule import NAME_CHARS_MAX, ScheduleSpec
from fleetctl.specs.kinds.settings import NAME as SETTINGS
from fleetctl.specs.kinds.settings import SettingsSpec
from fleetctl.specs.kinds.sweep import AT_WANDB, SweepSpec
from fleetctl.specs.kinds.volume import VolumeSpec
from fleetctl.specs.values.namespaces import ASSET_CHARS_MAX, DEFAULT_NAMESPACE, asset_name
from fleetctl.specs.values.scalars import Spec

ENVELOPE = ("apiVersion", "kind", "metadata", "spec")

# `get -o yaml` shows these; editing its output and applying it again must work.
_WRITTEN_BY_US = ("status",)
_APART_HINT = "write each manifest as a document of its own, with a line `---` between them"
_WRAP_HINT = "write a Sweep whose spec has `searchFrom: {file: ...}` and name this file there"
_KUBERNETES = ("batch/", "apps/", "kubeflow.org/", "jobset.x-k8s.io/", "ray.io/")
_CONVERTED = {"Job": "k8s-job", "CronJob": "k8s-job"}

_AT = ("metadata", "namespace")

ENTRIES_MAX = 10_000  # the longest useful list, of requirements or arguments, has some hundreds

# Data of the author's, any length and any form; their own models look at each entry once.
_DATA = frozenset(
    {
        ("spec", "tasks", "items"),
        ("spec", "tasks", "files"),
        ("spec", "tasks", "matrix"),
        ("spec", "search", "parameters"),
    }
)

_NOT_YET = " is not supported yet"


def find_no_manifest(data: Any, file: str) -> Finding | None:
    """Returns the one finding for a document that is not a manifest; None for a document that may
    be one.
    """
    if not isinstance(data, dict):
        message = f" is {value_text(data)}; it must be a mapping of {join_names(ENVELOPE)}"
        return Finding((), message, _APART_HINT if isinstance(data, list) else "")
    if "kind" not in data and "method" in data and "parameters" in data:
        return Finding((), " is a W&B sweep configuration, not a manifest", _WRAP_HINT)
    version = data.get("apiVersion")
    kind = data.get("kind")
    if isinstance(version, str) and version.startswith(_KUBERNETES):
        message = (
            f" is `{version}`, and a {value_text(kind)} of Kubernetes is not a manifest of fleetctl"
        )
        return Finding(("apiVersion",), message, _kubernetes_hint(kind, escape_text(file)))
    if not any(name in data for name in ENVELOPE):
        message = f" is not a manifest: it has none of {join_names(ENVELOPE)}"
        return Finding((), message, _foreign_hint(data, escape_text(file)))
    return None


def _kubernetes_hint(kind: object, file: str) -> str:
    if isinstance(kind, str) and kind in _CONVERTED:
        return f"`fleetctl convert --from {_CONVERTED[kind]} {file}` makes a BatchJob of it"
    return f"write one of {join_names(KINDS, last='or')}"


def _foreign_hint(data: Mapping[str, Any], file: str) -> str:
    if "type" in data and data["type"] in ("task", "dev-environment", "service", "volume"):
        return f"`fleetctl convert --from dstack {file}` reads files of dstack"
    if "run" in data and ("resources" in data or "setup" in data or "workdir" in data):
        return f"`fleetctl convert --from skypilot {file}` reads files of SkyPilot"
    return "`fleetctl init` writes one to begin with; name the files that are with `-f`"


def check_envelope(data: Mapping[str, Any]) -> Iterator[Finding]:
    unknown = [key for key in data if key not in ENVELOPE and key not in _WRITTEN_BY_US]
    for key in unknown[:PROBLEMS_SHOWN_MAX]:
        hint = suggest_name(key, list(ENVELOPE))
        yield Finding((key,), " is an unknown field", hint, at_key=True)
    if data.get("apiVersion") != API_VERSION:
        yield _describe_wrong_key(data, "apiVersion", f"it must be `{API_VERSION}`")
    kind = data.get("kind")
    if kind_called(kind) is not None:
        return
    if not isinstance(kind, str):
        yield _describe_wrong_key(data, "kind", f"it must be one of {join_names(KINDS)}")
    elif kind in NOT_YET_KINDS:
        yield Finding(("kind",), f" is `{kind}`, which is not supported yet")
    else:
        yield _describe_wrong_key(
            data, "kind", f"it must be one of {join_names(KINDS)}", kind_hint(kind)
        )


def kind_hint(kind: str) -> str:
    """The kind that was meant, or all that there are."""
    hint = SYNONYMOUS_KINDS.get(kind.lower()) or guess_name(kind, (*KINDS, *RENDERED_KINDS))
    if hint:
        return f"did you mean `{hint}`?"
    return suggest_name(kind, list(KINDS))


def _describe_wrong_key(
    data: Mapping[str, Any],
    key: str,
    right: str,
    hint: str = "",
) -> Finding:
    at: Path = (key,)
    if key not in data:
        return Finding((), f" is missing; {right}", hint, about=at)
    return Finding(at, f" is {value_text(data[key])}; {right}", hint)


@dataclass(frozen=True, slots=True)
class NamespaceChoice:
    """The namespace for documents that name no namespace. binding: the others must name the same
    one.
    """

    name: str = DEFAULT_NAMESPACE
    binding: bool = False


def apply_namespace(
    metadata: Metadata,
    kind: Kind,
    chosen: NamespaceChoice,
) -> Metadata:
    """Returns the metadata with the namespace that the object is going to have."""
    if not kind.namespaced:
        return metadata.model_copy(update={"namespace": DEFAULT_NAMESPACE})
    if "namespace" in metadata.model_fields_set:
        return metadata
    return metadata.model_copy(update={"namespace": chosen.name})


def check_namespace(
    metadata: Metadata,
    kind: Kind,
    chosen: NamespaceChoice,
) -> Iterator[Finding]:
    """Checks as kubectl does: a file that names one namespace is not applied to another."""
    message = metadata.namespace if "namespace" in metadata.model_fields_set else ""
    if message and not kind.namespaced and message != DEFAULT_NAMESPACE:
        yield Finding(_AT, f" is `{message}`, and a {kind.name} has no namespace", "leave it out")
    elif message and kind.namespaced and chosen.binding and message != chosen.name:
        hint = f"write `-n {message}`, or leave one of the two out"
        yield Finding(_AT, f" is `{message}`, and `-n` says `{chosen.name}`", hint)


def find_too_long(metadata: Metadata, spec: Spec) -> Iterator[Finding]:
    """A schedule whose objects would have longer names than there are, and assets whose name at the
    provider is longer than providers take.
    """
    if isinstance(spec, ScheduleSpec) and len(metadata.name) > NAME_CHARS_MAX:
        message = f" has {len(metadata.name)} characters; a schedule's may have {NAME_CHARS_MAX}"
        hint = "the objects that it makes are called NAME-29000000"
        yield Finding(("metadata", "name"), message, hint)
    own = [metadata.name] if isinstance(spec, VolumeSpec | FunctionSpec) else []
    held = spec.volumes if isinstance(spec, FunctionSpec) else ()
    if isinstance(spec, WorkSpec):
        held = tuple(mount for part in spec.parts() for mount in part.template.volumes)
    mounts = dict.fromkeys(mount.name for mount in held)
    for name in (*own, *mounts):
        if len(asset_name(name, metadata.namespace)) > ASSET_CHARS_MAX:
            message = f" is `{metadata.namespace}`, which is too long before `{name}`"
            hint = f"both together may have {ASSET_CHARS_MAX - 1} characters"
            yield Finding(_AT, message, hint)


def find_overlong(value: Any, path: Path) -> Iterator[Finding]:
    """Lists with more than ENTRIES_MAX entries, wherever no data of the author's is expected."""
    if isinstance(value, list):
        if len(value) > ENTRIES_MAX:
            message = f" has {len(value):,} entries; it must have at most {ENTRIES_MAX:,}"
            yield Finding(path, message)
            return
        entries: Any = enumerate(value)
    elif isinstance(value, dict):
        entries = value.items()
    else:
        return
    for key, entry in entries:
        if isinstance(entry, dict | list) and _own_path((*path, key)) not in _DATA:
            yield from find_overlong(entry, (*path, key))


def _own_path(path: Path) -> Path:
    """Returns the path in a document of its own, for a field in the template of another one."""
    if path[:3] == ("spec", "template", "spec"):
        return path[2:]
    return path


def not_yet(metadata: Metadata, spec: Spec) -> Iterator[Finding]:
    """Finds fields that are valid and not supported yet, or that cannot mean what their name
    suggests, so that no spec is silently ignored. A check goes when its feature comes.
    """
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
