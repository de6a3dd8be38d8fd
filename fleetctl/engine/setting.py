"""One field of a stored object, changed by name: the same wish as an apply of the file with the new
value, so that it is checked, shown and asked for in the same way. Called by the socket server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from fleetctl.engine.notes import NOTES
from fleetctl.engine.wishes import find
from fleetctl.errors import UsageError
from fleetctl.manifest import Manifest
from fleetctl.manifest.messages import findings
from fleetctl.manifest.plain import resolve
from fleetctl.manifest.problems import path_text
from fleetctl.stores.base import Store
from specs.common import Metadata
from specs.kinds import KINDS
from specs.namespaces import DEFAULT_NAMESPACE

FIELDS_MAX = 20


def manifest_with(
    store: Store,
    kind: str,
    name: str,
    changes: Sequence[str],
    *,
    namespace: str = DEFAULT_NAMESPACE,
) -> Manifest:
    """The stored object as a manifest with these fields changed, each `field.path=value`.

    Raises NotFound, and UsageError for what no such object can say.
    """
    resource = find(store, kind, name, namespace)
    if not 0 < len(changes) <= FIELDS_MAX:
        raise UsageError(f"between 1 and {FIELDS_MAX} fields are set at once, not {len(changes)}")
    data: dict[str, Any] = json.loads(resource.spec)
    for change in changes:
        path, equals, text = change.partition("=")
        if not equals or not path:
            raise UsageError(
                f"`{change}` is not FIELD=VALUE",
                hint="for instance `parallelism=8` or `budget.maxCost=25`",
            )
        _put(data, path.removeprefix("spec.").split("."), _value(path, text))
    model = KINDS[kind].spec
    try:
        spec = model.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        wrong = next(findings(error, model, data, ("spec",)))
        said = f"{resource.key}: {path_text(wrong.subject)}{wrong.said}"
        raise UsageError(said, hint=wrong.hint) from error
    written = {key: text for key, text in resource.annotations.items() if key not in NOTES}
    about = Metadata(
        name=name,
        namespace=namespace,
        labels=resource.labels,
        annotations=written,
    )
    return Manifest(kind, name, about, spec, resource.key, 0)


def _value(path: str, text: str) -> object:
    """As YAML reads a plain text; lists and mappings are written as JSON."""
    try:
        return json.loads(text) if text[:1] in ("[", "{", '"') else resolve(text)
    except ValueError as error:
        raise UsageError(f"the value of `{path}` cannot be read: {error}") from error


def _put(data: dict[str, Any], path: list[str], value: object) -> None:
    """null takes the field away, so that its default is back."""
    *above, last = path
    for part in above:
        inner = data.setdefault(part, {})
        if not isinstance(inner, Mapping):
            raise UsageError(
                f"`{'.'.join(path)}` leads through `{part}`, which holds no fields",
                hint="change the file and apply it",
            )
        data = inner  # type: ignore[assignment]
    if value is None:
        data.pop(last, None)
    else:
        data[last] = value
