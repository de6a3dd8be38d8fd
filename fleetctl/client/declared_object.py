"""A manifest as a Python object: the base of `BatchJob("hello", tasks=..., template=...)`. The
classes of the kinds are in manifests.py, written from the kinds' rows.

Each holds a checked spec of `fleetctl.specs`; fields are written as in YAML or in snake_case.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ValidationError

from fleetctl.guest.task.plain import replace_value
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.findings import list_findings
from fleetctl.manifest.problems import ManifestErrors, ManifestProblem, path_text
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import API_VERSION, KINDS
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.specs.values.scalars import Spec

M = TypeVar("M", bound=Spec)


class DeclaredObject:
    """A manifest of a single kind, checked as it is made. Raises ManifestErrors with every error.

    spec: the fields below `spec`, by their names in YAML or in snake_case; values as YAML has them
    or models of `fleetctl.specs`. Arrays, tuples and numbers of numpy are as good as lists and
    numbers.
    """

    kind: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__
        row = KINDS.get(cls.kind)
        if row is not None:
            cls.__doc__ = row.summary

    def __init__(
        self,
        name: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:
        about = {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        }
        self.metadata = self._checked(Metadata, about, "metadata")
        self.spec = self._checked(KINDS[self.kind].spec.model_of(spec), spec, "spec")

    def __repr__(self) -> str:
        return f"{self.kind}({self.name!r})"

    @property
    def name(self) -> str:
        return self.metadata.name

    def manifest(self) -> dict[str, object]:
        """Returns the manifest as in YAML, without fields that have their default value."""
        return {
            "apiVersion": API_VERSION,
            "kind": self.kind,
            "metadata": _dump_spec(self.metadata),
            "spec": _dump_spec(self.spec),
        }

    def document(self) -> Document:
        """Returns the text that is sent to the controller."""
        text = json.dumps(self.manifest(), indent=2)
        return Document(repr(self), text, str(Path.cwd()))

    def _checked(
        self,
        model: type[M],
        data: Mapping[str, Any],
        where: str,
    ) -> M:
        try:
            return model.model_validate(_as_in_yaml(data))
        except ValidationError as error:
            whose = (
                f"{self.kind}({data.get('name', '...')!r})" if where == "metadata" else self.kind
            )
            found = list_findings(error, model, data, (where,))
            raise ManifestErrors(
                [
                    ManifestProblem(
                        whose,
                        0,
                        0,
                        path_text(it.subject) + it.what,
                        it.fix,
                    )
                    for it in found
                ]
            ) from None


def _as_in_yaml(value: Any) -> Any:
    """Converts values of numeric libraries, tuples, paths and so on as SUBMIT takes them; models
    and unknown types stay as they are, for the check to name.
    """
    if value is None or isinstance(value, (bool, BaseModel)):
        return value
    if isinstance(value, Mapping):
        return {key: _as_in_yaml(it) for key, it in value.items()}
    if isinstance(value, (list, tuple, Iterator)):
        return [_as_in_yaml(it) for it in value]
    if isinstance(value, Enum):
        return value.value
    for sort in (str, int, float):
        if isinstance(value, sort):  # also for numpy, whose own types are subclasses of these
            return sort(value)
    try:
        return _as_in_yaml(replace_value(value))
    except TypeError:
        return value


def _dump_spec(spec: Spec) -> dict[str, object]:
    return spec.model_dump(
        mode="json",
        by_alias=True,
        exclude_unset=True,
    )
