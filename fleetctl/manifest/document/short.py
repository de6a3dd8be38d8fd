"""The short form of a manifest, expanded to the full one before anything is checked.

Called by `rendering/render.py` for each document that was read, and by `convert --short|--long`.
The short form leaves out fields that can have a single meaning: `apiVersion`, the levels
`metadata`, `spec` and `template`, and mappings with one field (`source: .`). The full form is
checked, stored and shown; `FullForm.written_at` keeps where each expanded path stands in the file,
so that a message points at the line that its author wrote. A field with two meanings is a finding
that names both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.hints.synonyms import guess_name
from fleetctl.manifest.hints.value_hints import READ_TWICE
from fleetctl.manifest.problems import quote_text, value_text
from fleetctl.specs.kinds.registry import API_VERSION, KINDS, Kind

SCHEDULE = "Schedule"
SECRET = "Secret"  # noqa: S105 - a kind

_TOP = ("apiVersion", "kind", "metadata", "spec", "status")
# Field -> the mapping that a bare text in it abbreviates.
_ONE_TEXT: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "placement": lambda text: {"provider": text},
    "source": lambda text: {"git": {"url": text}} if _is_git(text) else {"path": text},
    "image": lambda text: {"registry": text},
    "checkpoint": lambda text: {"path": text},
    "searchFrom": lambda text: {"file": text},
}
_GIT = re.compile(r"^(?:[a-z][a-z0-9+]*://|git@)")
_MOUNT = re.compile(r"^([a-z0-9](?:[-.a-z0-9]*[a-z0-9])?):(/[^:]*)$")


@dataclass(frozen=True, slots=True)
class NamedVariable:
    """A Secret that a document names by a variable. path: path of the name in the document."""

    manifest: dict[str, Any]
    path: Path

    @property
    def key(self) -> tuple[str | None, str]:
        """Returns the namespace and the name."""
        metadata = self.manifest["metadata"]
        return metadata.get("namespace"), metadata["name"]

    @property
    def written_at(self) -> dict[Path, Path]:
        above: list[Path] = [(), ("spec",), ("spec", "fromEnv"), ("spec", "fromEnv", 0)]
        return dict.fromkeys([*above, ("metadata",), ("metadata", "name")], self.path)


@dataclass(slots=True)
class FullForm:
    """One manifest in the full form. written_at: paths of the full form, each with the path of the
    document at which its content is written; empty where the document is in the full form already.
    """

    value: Any
    written_at: dict[Path, Path] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    secrets: list[NamedVariable] = field(default_factory=list)

    def paths_of(self, broken: set[Path]) -> set[Path]:
        """Paths of the full form for paths of the document."""
        if not self.written_at:
            return broken
        found = set(broken)
        for full, short in self.written_at.items():
            depth = len(short)
            found |= {(*full, *path[depth:]) for path in broken if path[:depth] == short}
        return found


def expand_document(data: Any) -> FullForm:
    """Returns the full form of a document; short parts of `data` itself are changed."""
    kind = KINDS.get(data["kind"]) if _has_known_kind(data) else None
    if kind is None:
        return FullForm(data)
    full = FullForm(data)
    _restore_levels(full, kind)
    made = full.value
    kind = KINDS[made["kind"]]
    spec = made.get("spec")
    at: Path = ("spec",)
    if kind.starts and isinstance(spec, dict) and isinstance(spec.get("template"), dict):
        inner = KINDS.get(str(spec["template"].get("kind")))
        if inner is not None and inner.runs:
            kind = inner
            spec = spec["template"].get("spec")
            at = ("spec", "template", "spec")
    if isinstance(spec, dict) and (kind.runs or "source" in _spec_fields(kind)):
        for level, path in _list_levels(spec, at):
            _expand_texts(full, level, path)
    return full


def list_full_values(documents: Iterable[Any]) -> list[Any]:
    """Returns the full forms of documents; a Secret that several name by a variable occurs once."""
    values: list[Any] = []
    seen: set[tuple[str | None, str]] = set()
    for data in documents:
        full = expand_document(data)
        values.append(full.value)
        for secret in full.secrets:
            if secret.key not in seen:
                seen.add(secret.key)
                values.append(secret.manifest)
    return values


def find_written_path(written_at: Mapping[Path, Path], path: Path) -> Path:
    """Returns the path in the document of the value that `path` names in the full form."""
    for depth in range(len(path), -1, -1):
        if (there := written_at.get(path[:depth])) is not None:
            return (*there, *path[depth:])
    return path


def _has_known_kind(data: Any) -> bool:
    return isinstance(data, dict) and isinstance(data.get("kind"), str)


def _is_git(text: str) -> bool:
    return _GIT.match(text) is not None


def _spec_fields(kind: Kind) -> tuple[str, ...]:
    return _field_names(kind.spec)


def _template_fields(kind: Kind) -> tuple[str, ...]:
    """Returns the fields of `template` of a kind that does work; empty for other kinds."""
    if not kind.runs:
        return ()
    from fleetctl.specs.blocks.template import Template

    return _field_names(Template)


def _field_names(model: Any) -> tuple[str, ...]:
    return tuple(info.alias or name for name, info in model.model_fields.items())


def _restore_levels(full: FullForm, kind: Kind) -> None:
    """Puts the levels back that a short document leaves out."""
    data = full.value
    extra = [key for key in data if key not in _TOP]
    if not extra and "apiVersion" in data:
        return

    made: dict[str, Any] = {"apiVersion": data.get("apiVersion", API_VERSION), "kind": kind.name}
    if "metadata" in data or "name" in data:
        made["metadata"] = _restore_metadata(full, data)

    times = data.get("schedule")
    scheduled = kind.runs and isinstance(times, str)
    if "spec" in data:
        made["spec"] = data["spec"]
        left = [key for key in extra if key != "name"]
    else:
        at: Path = ("spec", "template", "spec") if scheduled else ("spec",)
        made["spec"], left = _restore_spec(full, kind, at)
        full.written_at |= {("spec",): (), at: ()}

    if kind.runs and "schedule" in data:
        left = [key for key in left if key != "schedule"]
        if not scheduled:
            full.findings.append(_refuse_schedule(times))
    if scheduled:
        template = {"kind": kind.name, "spec": made["spec"]}
        made |= {"kind": SCHEDULE, "spec": {"schedule": times, "template": template}}
        full.written_at[("spec", "schedule")] = ("schedule",)
        full.written_at[("spec", "template", "kind")] = ("kind",)
        if "spec" in data:
            full.written_at[("spec", "template", "spec")] = ("spec",)

    made |= {key: data[key] for key in (*left, "status") if key in data}
    full.value = made


def _restore_metadata(full: FullForm, data: Mapping[str, Any]) -> Any:
    metadata = data.get("metadata", {})
    if "name" not in data:
        return metadata
    if not isinstance(metadata, dict) or "name" in metadata:
        full.findings.append(_refuse_both("name", "metadata.name"))
        return metadata
    full.written_at[("metadata", "name")] = ("name",)
    return {"name": data["name"], **metadata}


def _restore_spec(
    full: FullForm,
    kind: Kind,
    at: Path,
) -> tuple[dict[str, Any], list[str]]:
    """Returns the spec of a document without `spec`, and its unknown keys."""
    data = full.value
    own = _spec_fields(kind)
    inner = _template_fields(kind)
    spec: dict[str, Any] = {}
    lifted: dict[str, Any] = {}
    left: list[str] = []
    for key, value in data.items():
        if key in _TOP or key == "name":
            continue
        if key in own and key in inner:
            full.findings.append(_two_readings(key, kind))
        elif key in inner:
            lifted[key] = value
        elif key in own:
            spec[key] = value
            full.written_at[(*at, key)] = (key,)
        elif guess_name(key, _TOP) is not None or (key == "schedule" and kind.runs):
            left.append(key)
        elif guess_name(key, own) is None and guess_name(key, inner) is not None:
            lifted[key] = value  # the model of the template reports the fault
        else:  # the model of the kind reports the fault
            spec[key] = value
            full.written_at[(*at, key)] = (key,)
    if lifted or _must_have_template(kind):
        template = spec.setdefault("template", {})
        if isinstance(template, dict):
            for key, value in lifted.items():
                if key in template:
                    full.findings.append(_refuse_both(key, f"template.{key}"))
                else:
                    template[key] = value
                    full.written_at[(*at, "template", key)] = (key,)
    if "template" not in data:
        full.written_at[(*at, "template")] = ()
    return spec, left


def _must_have_template(kind: Kind) -> bool:
    """Returns True where a file without any program is to get an error about the program, and not
    about the level `template`, which it never has.
    """
    info = kind.spec.model_fields.get("template") if kind.runs else None
    return info is not None and info.is_required()


def _refuse_schedule(value: Any) -> Finding:
    times = value.get("cron") if isinstance(value, dict) else None
    text = times if isinstance(times, str) else "0 3 * * *"
    problem = f" is {value_text(value)}; it must be a text of five fields"
    return Finding(("schedule",), problem, f"write `schedule: {quote_text(text)}`")


def _refuse_both(key: str, other: str) -> Finding:
    hint = f"write one of them: `{key}` at the top means `{other}`"
    return Finding((key,), f" is given twice, here and as `{other}`", hint, at_key=True)


def _two_readings(key: str, kind: Kind) -> Finding:
    hint = f"write `spec: {{{key}: ...}}` or `template: {{{key}: ...}}`"
    problem = f" could be `spec.{key}` or `spec.template.{key}` of a {kind.name}"
    return Finding((key,), problem, hint, at_key=True)


def _list_levels(spec: dict[str, Any], at: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """Yields the mappings of a spec that may hold a bare text, each with its path."""
    yield spec, at
    if isinstance(spec.get("template"), dict):
        yield spec["template"], (*at, "template")
    for key in ("stages", "groups"):
        parts = spec.get(key)
        for number, part in enumerate(parts if isinstance(parts, list) else ()):
            if isinstance(part, dict):
                yield part, (*at, key, number)


def _expand_texts(
    full: FullForm,
    level: dict[str, Any],
    path: Path,
) -> None:
    for key, value in list(level.items()):
        here: Path = (*path, key)
        readings = READ_TWICE[key](value) if isinstance(value, str) and key in READ_TWICE else None
        if readings is not None:
            problem = f" is {value_text(value)}, which could be {readings.meanings}"
            at = find_written_path(full.written_at, here)
            full.findings.append(Finding(at, problem, readings.ways))
            del level[key]  # all else is checked without it
        elif isinstance(value, str) and key in _ONE_TEXT:
            level[key] = made = _ONE_TEXT[key](value)
            there = find_written_path(full.written_at, here)
            for inner in _leaf_paths(made):
                full.written_at[(*here, *inner)] = there
        elif key == "volumes" and isinstance(value, list):
            _expand_mounts(full, value, here)
        elif key == "secrets" and isinstance(value, list):
            _expand_secrets(full, value, here)


def _leaf_paths(value: Any) -> Iterator[Path]:
    if not isinstance(value, dict):
        yield ()
        return
    for key, inner in value.items():
        yield from ((key, *path) for path in _leaf_paths(inner))


def _expand_mounts(
    full: FullForm,
    volumes: list[Any],
    here: Path,
) -> None:
    """Expands `data:/mnt` to a volume and its mount path."""
    for number, it in enumerate(volumes):
        parts = _MOUNT.match(it) if isinstance(it, str) else None
        if parts is not None:
            there = find_written_path(full.written_at, (*here, number))
            volumes[number] = {"name": parts[1], "mountPath": parts[2]}
            full.written_at[(*here, number, "name")] = there
            full.written_at[(*here, number, "mountPath")] = there


def _expand_secrets(
    full: FullForm,
    names: list[Any],
    here: Path,
) -> None:
    """Expands `{env: HF_TOKEN}` to a Secret of its own that is made with the object."""
    for number, it in enumerate(names):
        if not isinstance(it, dict) or list(it) != ["env"] or not isinstance(it["env"], str):
            continue
        there = find_written_path(full.written_at, (*here, number))
        names[number] = name = secret_name(it["env"])
        full.written_at[(*here, number)] = there
        full.secrets.append(
            NamedVariable(_build_secret(name, it["env"], full.value), (*there, "env"))
        )


def secret_name(variable: str) -> str:
    """Returns the name of the Secret that holds one variable of the environment."""
    return f"env-{variable.lower().replace('_', '-').strip('-')}"


def _build_secret(
    name: str,
    variable: str,
    owner: Mapping[str, Any],
) -> dict[str, Any]:
    metadata = owner.get("metadata")
    space = metadata.get("namespace") if isinstance(metadata, dict) else None
    return {
        "apiVersion": API_VERSION,
        "kind": SECRET,
        "metadata": {"name": name, **({} if space is None else {"namespace": space})},
        "spec": {"fromEnv": [variable]},
    }


def shorten_manifest(value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the short form of a manifest in the full form; `expand` restores the full form."""
    kind = KINDS[value["kind"]]
    spec = value.get("spec", {})
    metadata = dict(value.get("metadata", {}))
    made: dict[str, Any] = {"kind": kind.name}
    if "name" in metadata:
        made["name"] = metadata.pop("name")
    if metadata:
        made["metadata"] = metadata

    work = _scheduled_work(kind, spec)
    if work is not None:
        made |= {"kind": work[0].name, "schedule": spec["schedule"]}
        kind, spec = work
    levels = deepcopy(spec)
    for level, _ in _list_levels(levels, ()):
        _shorten_texts(level)

    own = _spec_fields(kind)
    inner = _template_fields(kind)
    # A field that would have two meanings at the top, or none there, needs its own level.
    unfit = {*_TOP, "name"} | (set(own) & set(inner))
    if any(key in unfit or key not in own for key in levels):
        return {**made, "spec": levels}

    template = levels.pop("template", None)
    made |= levels
    if isinstance(template, dict) and inner:
        kept = {key: it for key, it in template.items() if key in own or key not in inner}
        made |= {key: it for key, it in template.items() if key not in kept}
        template = kept
    if template:
        return {**made, "template": template}
    return made


def _scheduled_work(kind: Kind, spec: Any) -> tuple[Kind, dict[str, Any]] | None:
    """Returns the kind and spec that a Schedule makes, if the spec holds only that and
    its times.
    """
    if kind.name != SCHEDULE or set(spec) != {"schedule", "template"}:
        return None
    template = spec["template"]
    made = KINDS.get(template.get("kind"))
    if made is None or not made.runs or set(template) != {"kind", "spec"}:
        return None
    return made, template["spec"]


def _shorten_texts(level: dict[str, Any]) -> None:
    for key, value in level.items():
        if key in _ONE_TEXT and isinstance(value, dict):
            texts = [it for it in (value, *value.values()) if isinstance(it, dict)]
            leaves = [it for one in texts for it in one.values() if isinstance(it, str)]
            if len(leaves) == 1 and _ONE_TEXT[key](leaves[0]) == value:
                level[key] = leaves[0]
        elif key == "volumes" and isinstance(value, list):
            level[key] = [_short_mount(it) for it in value]


def _short_mount(mount: Any) -> Any:
    if isinstance(mount, dict) and set(mount) == {"name", "mountPath"}:
        text = f"{mount['name']}:{mount['mountPath']}"
        parts = _MOUNT.match(text)
        if parts is not None and (parts[1], parts[2]) == (mount["name"], mount["mountPath"]):
            return text
    return mount
