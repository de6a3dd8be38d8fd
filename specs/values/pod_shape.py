"""Parts of a pod as users write them: checked against Kubernetes' own fields, and laid over each
other as `kubectl patch` does. Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from fleetctl.specs.values.pod_fields import FIELDS

POD = "PodSpec"
CONTAINER = "Container"
TEMPLATE = "PodTemplateSpec"
DIRECTIVE = "$patch"  # of an entry of a list: `delete` takes it out, `replace` drops the others
# The fields that identify an entry of a list. All other lists are replaced whole.
MERGE_KEYS = {
    "Container": "name",
    "EphemeralContainer": "name",
    "Volume": "name",
    "EnvVar": "name",
    "ContainerPort": "containerPort",
    "VolumeMount": "mountPath",
    "VolumeDevice": "devicePath",
    "LocalObjectReference": "name",
    "HostAlias": "ip",
    "TopologySpreadConstraint": "topologyKey",
    "PodResourceClaim": "name",
    "PodSchedulingGate": "name",
}
_SORTS: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "number": (int, float),
    "flag": (bool,),
    "amount": (str, int, float),
}
_CALLED = {
    "text": "a text",
    "number": "a number",
    "flag": "true or false",
    "amount": "a number, or a text such as `500m` or `1Gi`",
}


def check_shape(
    value: Any,
    sort: str,
    *,
    whole: bool = True,
) -> Any:
    """Returns the value, if it is a `sort` of Kubernetes, or a list of this sort in brackets.
    whole: required fields must be there; in a patch they may be absent. Raises ValueError with the
    path and the fault.
    """
    for problem in find_shape_problems(value, sort, "", whole=whole):
        raise ValueError(problem)
    return value


def find_shape_problems(
    value: Any,
    sort: str,
    at: str,
    *,
    whole: bool,
) -> Iterator[str]:
    if sort.startswith("["):
        if not isinstance(value, list | tuple):
            yield f"{_format_at(at)}must be a list"
            return
        for number, one in enumerate(value):
            yield from find_shape_problems(one, sort[1:-1], f"{at}[{number}]", whole=whole)
    elif sort.startswith("{"):
        if not isinstance(value, Mapping):
            yield f"{_format_at(at)}must be a mapping"
            return
        for name, one in value.items():
            yield from find_shape_problems(one, sort[1:-1], f"{at}.{name}", whole=whole)
    elif sort in FIELDS:
        yield from _of_object(value, sort, at, whole=whole)
    elif sort in _SORTS:
        right = isinstance(value, _SORTS[sort])
        if not right or (isinstance(value, bool) and sort != "flag"):
            yield f"{_format_at(at)}is `{value}`; it must be {_CALLED[sort]}"


def _of_object(
    value: Any,
    sort: str,
    at: str,
    *,
    whole: bool,
) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{_format_at(at)}must be a mapping: a {sort} of Kubernetes"
        return
    fields = fields_of(sort)
    for name, one in value.items():
        if name == DIRECTIVE and not whole:
            continue
        if name not in fields:
            near = difflib.get_close_matches(str(name), fields, n=1)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            yield f"{_format_at(f'{at}.{name}')}is no field of a {sort} of Kubernetes{meant}"
        elif one is not None:
            yield from find_shape_problems(
                one, fields[name].rstrip("!"), f"{at}.{name}", whole=whole
            )
        elif whole:
            yield f"{_format_at(f'{at}.{name}')}is empty"
    if whole:
        for name, word in fields.items():
            if word.endswith("!") and name not in value:
                yield f"{_format_at(at)}has no `{name}`"


def _format_at(at: str) -> str:
    if at.lstrip("."):
        return f"`{at.lstrip('.')}` "
    return ""


@cache
def fields_of(sort: str) -> dict[str, str]:
    """Returns types by the names of fields, with `!` behind a required field."""
    return dict(word.split(":", 1) for word in FIELDS[sort].split())


def patch_shape(
    value: Any,
    patch: Any,
    sort: str,
) -> Any:
    """Returns a value with `patch` applied by the rules of Kubernetes' strategic merge."""
    if sort.startswith("["):
        return _patch_list(value or [], patch, sort[1:-1])
    if not isinstance(patch, Mapping):
        return patch
    if patch.get(DIRECTIVE) == "replace":
        return {name: one for name, one in patch.items() if name != DIRECTIVE}
    found = dict(value) if isinstance(value, Mapping) else {}
    fields = fields_of(sort) if sort in FIELDS else {}
    for name, one in patch.items():
        if one is None:
            found.pop(name, None)
        else:
            found[name] = patch_shape(found.get(name), one, fields.get(name, "any").rstrip("!"))
    return found


def _patch_list(
    value: list[Any],
    patch: list[Any],
    sort: str,
) -> list[Any]:
    key = MERGE_KEYS.get(sort)
    if key is None or any(_read_directive(it) == "replace" for it in patch):
        return [it for it in patch if _read_directive(it) is None]
    found = {it[key]: it for it in value}
    for one in patch:
        if _read_directive(one) == "delete":
            found.pop(one.get(key), None)
        else:
            found[one.get(key)] = patch_shape(found.get(one.get(key)), one, sort)
    return list(found.values())


def _read_directive(entry: Any) -> Any:
    if isinstance(entry, Mapping):
        return entry.get(DIRECTIVE)
    return None
