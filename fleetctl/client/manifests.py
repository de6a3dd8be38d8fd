"""Manifests as Python objects: `BatchJob("hello", tasks=..., template=...)`.

Each holds a checked spec of `fleetctl.specs`; fields are written as in YAML or in snake_case.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ValidationError

from fleetctl.guest.task.plain import plain
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.messages import findings
from fleetctl.manifest.problems import ManifestErrors, Problem, path_text
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import API_VERSION, KINDS
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.specs.values.scalars import Spec

M = TypeVar("M", bound=Spec)


class Declared:
    """A manifest of one kind, checked as it is made. Raises ManifestErrors with all that is wrong.

    spec: the fields below `spec`, by their names in YAML or in snake_case; values as YAML has them
    or models of `fleetctl.specs`. Arrays, tuples and numbers of numpy are as good as lists and
    numbers.
    """

    kind: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__

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
        self.spec = self._checked(KINDS[self.kind].spec, spec, "spec")

    def __repr__(self) -> str:
        return f"{self.kind}({self.name!r})"

    @property
    def name(self) -> str:
        return self.metadata.name

    def manifest(self) -> dict[str, object]:
        """As it would be written in YAML, without what has its default value."""
        return {
            "apiVersion": API_VERSION,
            "kind": self.kind,
            "metadata": _dumped(self.metadata),
            "spec": _dumped(self.spec),
        }

    def document(self) -> Document:
        """The text that is sent to the controller."""
        text = json.dumps(self.manifest(), indent=2)
        return Document(repr(self), text, str(Path.cwd()))

    def _checked(self, model: type[M], data: Mapping[str, Any], where: str) -> M:
        try:
            return model.model_validate(_as_in_yaml(data))
        except ValidationError as error:
            whose = (
                f"{self.kind}({data.get('name', '...')!r})" if where == "metadata" else self.kind
            )
            found = findings(error, model, data, (where,))
            raise ManifestErrors(
                [Problem(whose, 0, 0, path_text(it.subject) + it.problem, it.hint) for it in found]
            ) from None


def _as_in_yaml(value: Any) -> Any:
    """Values of numeric libraries, tuples, paths and so on as SUBMIT takes them; models, and what
    no rule knows, as they are, for the check to name.
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
        if isinstance(value, sort):  # of numpy, too, whose own are kinds of these
            return sort(value)
    try:
        return _as_in_yaml(plain(value))
    except TypeError:
        return value


def _dumped(spec: Spec) -> dict[str, object]:
    return spec.model_dump(mode="json", by_alias=True, exclude_unset=True)


class BatchJob(Declared):
    """Many independent tasks from one template."""


class Sweep(Declared):
    """A search over parameters; `search` is a W&B sweep configuration."""


class TrainingRun(Declared):
    """One long job in stages, which goes on from its checkpoint."""


class Function(Declared):
    """Containers that stay warm between the tasks that call them."""


class Volume(Declared):
    """A directory that outlives sandboxes."""


class Provider(Declared):
    """Limits, prices and the account of a place to run."""


class Endpoint(Declared):
    """Model servers that tasks may ask, with limits, prices and keys."""


class Budget(Declared):
    """What all objects with certain labels may cost."""


class Secret(Declared):
    """Where values are found when a run starts."""
