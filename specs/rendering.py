"""Variables: the values that differ from one use of a file to the next, declared with a type; and
the Overlay: the differences of an environment from the manifests that it is made of.

A document of these kinds is no object and never stored: the values of Variables replace `${{ name
}}` in manifests, and the applied manifests of an Overlay are those of its base, changed.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import SchemaError

from fleetctl.specs.blocks.common import LabelKey, LabelValue
from fleetctl.specs.values.scalars import Float, Int, Name, NonEmptyText, Spec, Text

VARIABLES_MAX = 1_000  # per document

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")

BASES_MAX = 100
PATCHES_MAX = 1_000


def _check_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            "a variable's name must be at most 63 letters, digits, `_` and `-`, and begin with a"
            " letter"
        )
    return value


VariableName = Annotated[str, AfterValidator(_check_name)]

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "list": (list,),
    "map": (dict,),
}
_WORDS = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
    "list": "a list",
    "map": "a mapping",
}


def _matches_pattern(pattern: str, text: str) -> bool:
    """Returns True if the whole text matches. By pydantic's engine, whose time is linear: Python's
    own can be made to search for ever, and the controller with it. Raises SchemaError.
    """
    whole = TypeAdapter(Annotated[str, StringConstraints(pattern=f"^(?:{pattern})$")])
    try:
        whole.validate_python(text)
    except ValidationError:
        return False
    return True


class Variable(Spec):
    """One declaration. Without a default it must be given a value."""

    type: Literal["string", "integer", "number", "boolean", "list", "map"] = Field(
        description="Type of its value."
    )
    default: Any = Field(
        default=None, description="Its value where none is given; without one it must be given."
    )
    description: Text = Field(default="", description="Its purpose; default none.")
    enum: tuple[Any, ...] | None = Field(
        default=None,
        min_length=1,
        description="The values that it may have; default any.",
    )
    pattern: NonEmptyText | None = Field(
        default=None,
        description="Regular expression that the whole of a string must match; default any.",
    )
    minimum: Int | Float | None = Field(
        default=None, description="The least that a number may be; default none."
    )
    maximum: Int | Float | None = Field(
        default=None, description="The most that a number may be; default none."
    )

    @property
    def required(self) -> bool:
        return "default" not in self.model_fields_set

    def wrong(self, value: Any) -> str:
        """Describes the right value, as a clause; empty if `value` is right."""
        sorts = _TYPES[self.type]
        if not isinstance(value, sorts) or (isinstance(value, bool) and bool not in sorts):
            return f"it must be {_WORDS[self.type]}"
        if self.enum is not None and value not in self.enum:
            return f"it must be one of {', '.join(f'`{it}`' for it in self.enum)}"
        if self.pattern is not None and not _matches_pattern(self.pattern, str(value)):
            return f"it must match `{self.pattern}`"
        if isinstance(value, int | float):
            if self.minimum is not None and value < self.minimum:
                return f"it must be at least {self.minimum}"
            if self.maximum is not None and value > self.maximum:
                return f"it must be at most {self.maximum}"
        return ""

    @model_validator(mode="after")
    def _fits_its_type(self) -> Variable:
        numeric = self.type in ("integer", "number")
        if self.pattern is not None:
            if self.type != "string":
                raise ValueError("`pattern` is for strings")
            try:
                _matches_pattern(self.pattern, "")
            except SchemaError:
                raise ValueError(
                    "its `pattern` must be a regular expression, without looking around or back"
                ) from None
        if not numeric and (self.minimum is not None or self.maximum is not None):
            raise ValueError("`minimum` and `maximum` are for numbers")
        if self.enum is not None and self.type in ("list", "map"):
            raise ValueError("`enum` is for single values")
        bare = Variable.model_construct(type=self.type, enum=None)
        for value in self.enum or ():
            if must := bare.wrong(value):
                raise ValueError(f"its `enum` holds `{value}`; {must}")
        if not self.required and (must := self.wrong(self.default)):
            raise ValueError(f"its `default` does not fit: {must}")
        return self


class Variables(Spec):
    """Values that differ from one use of these files to the next, each at `${{ name }}`."""

    api_version: Literal["fleetctl.dev/v1alpha1"] = Field(description="The form of this document.")
    kind: Literal["Variables"] = Field(description="Kind of this document.")
    variables: dict[VariableName, Variable] = Field(
        min_length=1,
        max_length=VARIABLES_MAX,
        description="Each by its name.",
    )


def _as_list(value: Any) -> Any:
    if isinstance(value, str):
        return [value]
    return value


class Overlay(Spec):
    """The differences of an environment from the manifests that it is made of."""

    api_version: Literal["fleetctl.dev/v1alpha1"] = Field(description="The form of this document.")
    kind: Literal["Overlay"] = Field(description="Kind of this document.")
    base: Annotated[
        tuple[NonEmptyText, ...],
        BeforeValidator(_as_list),
        Field(
            min_length=1,
            max_length=BASES_MAX,
            description="Files or directories of manifests, relative to this file; a text is one.",
        ),
    ]
    variables: dict[VariableName, Any] = Field(
        default_factory=dict, description="Values of variables that the base declares."
    )
    namespace: Name | None = Field(
        default=None, description="Namespace of all the objects; default: their own."
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="Added to the labels of each object; default none."
    )
    patches: tuple[dict[str, Any], ...] = Field(
        default=(),
        max_length=PATCHES_MAX,
        description="Parts of manifests: `kind` and `metadata.name` name the object.",
    )
