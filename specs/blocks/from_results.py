"""Parameters of an object from results of another: `tasks.fromResults`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from fleetctl.specs.values.scalars import Name, NonEmptyText, Spec

PARAMETER_NAME_LENGTH_MAX = 256  # longer ones make no usable variable
WHERE_CHARS_MAX = 4096

JsonType = Literal["string", "number", "integer", "boolean", "object", "array", "null"]


def parameter_name(value: str) -> str:
    """Checks a name. Raises ValueError for an invalid one."""
    if not 0 < len(value) <= PARAMETER_NAME_LENGTH_MAX or "\0" in value or "=" in value:
        raise ValueError("a parameter's name must be 1 to 256 characters, without `=` and NUL")
    return value


ParameterName = Annotated[str, AfterValidator(parameter_name)]


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
