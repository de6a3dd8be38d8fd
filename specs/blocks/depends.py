"""The objects that work waits for before any unit begins: `dependsOn`, and `tasks.fromResults`,
which takes parameters from another object's results.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from fleetctl.specs.values.namespaces import KIND_OF
from fleetctl.specs.values.scalars import Name, NonEmptyText, ParameterName, Spec

DEPENDENCIES_MAX = 100  # users read the whole list; a list beyond it wants one object that gathers

WHERE_CHARS_MAX = 4096

JsonType = Literal["string", "number", "integer", "boolean", "object", "array", "null"]


class Dependency(Spec):
    """One object that must have come to its end: exactly one of `job`, `sweep`, `trainingrun`."""

    job: Name | None = Field(default=None, description="A BatchJob of the same namespace.")
    sweep: Name | None = Field(default=None, description="A Sweep of the same namespace.")
    trainingrun: Name | None = Field(
        default=None, description="A TrainingRun of the same namespace."
    )
    condition: Literal["Succeeded", "Complete", "Failed", "Finished"] = Field(
        default="Succeeded",
        description="Succeeded (Complete in Kubernetes), Failed, or Finished, which is any end;"
        " default Succeeded.",
    )

    @model_validator(mode="after")
    def _names_one(self) -> Dependency:
        if sum(getattr(self, field) is not None for field in KIND_OF) != 1:
            raise ValueError("a dependency needs exactly one of `job`, `sweep` and `trainingrun`")
        return self

    @property
    def node(self) -> tuple[str, str]:
        """Its kind and name."""
        return self.kind, self.name

    @property
    def field(self) -> str:
        """The field that names its object."""
        return next(field for field in KIND_OF if getattr(self, field) is not None)

    @property
    def kind(self) -> str:
        return KIND_OF[self.field]

    @property
    def name(self) -> str:
        name: str = getattr(self, self.field)
        return name


def _named_once(value: tuple[Dependency, ...]) -> tuple[Dependency, ...]:
    twice = [it for at, it in enumerate(value) if it.node in [one.node for one in value[:at]]]
    if twice:
        raise ValueError(f"it names {twice[0].field} `{twice[0].name}` twice")
    return value


Dependencies = Annotated[tuple[Dependency, ...], AfterValidator(_named_once)]


class FromResults(Spec):
    """The results of a job that is over: each is the parameters of the task with its index."""

    job: Name = Field(description="A BatchJob of the same namespace; tasks begin after its end.")
    where: NonEmptyText | None = Field(
        default=None,
        max_length=WHERE_CHARS_MAX,
        description="SQL over its tasks, with the columns of `query`; default: those that"
        " succeeded.",
    )
    types: dict[ParameterName, JsonType] = Field(
        default_factory=dict,
        description="Fields of each result, with their types of JSON Schema; default: an object of"
        " any.",
    )
