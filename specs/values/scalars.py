"""The base model and the strict scalar types that every spec is made of, variables as a list, rules
over several fields, and fields whose old name is still read.

A manifest is typed by its author: the text "3" is not the number 3, and `true` is not 1.
Collections stay lax so that a YAML list becomes a tuple.

Rules over several fields are CEL for an API server, beside the model's own validator, which stays
the law: they catch a mistake while `kubectl apply` still waits. Only fields with one type may be
named in them; CEL does not see the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from fleetctl.specs.values.quantities import (
    BYTES_FORM,
    CPU_FORM,
    DURATION_FORM,
    parse_bytes,
    parse_cpu,
    parse_duration,
)

# Counts end up in 32-bit columns of displays and in ranges; more tasks than this is a typing error.
COUNT_MAX = 2**31 - 1
# Beyond it numbers in JSON are no exact ones, and an API server refuses a field with such a limit.
EXACT_INT_MAX = 2**53 - 1
PATH_LENGTH_MAX = 4096  # PATH_MAX on Linux
PARAMETER_NAME_LENGTH_MAX = 256  # longer ones make no usable variable

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Keys and tokens have small letters in them: one that stands where its name should is found out.
_CREDENTIAL_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,127}")
# A mount over these would hide the sandbox's own system files.
_RESERVED_PATHS = ("/", "/proc", "/sys", "/dev")

KEY = "x-kubernetes-validations"


# YAML 1.1, which kubectl, helm, kustomize, Argo CD and Flux read, has `on` for true: a field with
# that name never reaches a cluster. A warning names the new one (manifest/checks/clusters.py).
OLD_NAME = "The old name of `when`, which kubectl reads as `true`."


class Spec(BaseModel):
    """Immutable, knows every field it has, camelCase outside and snake_case inside."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        allow_inf_nan=False,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
    )

    @classmethod
    def model_of(cls, data: object) -> type[Spec]:
        """Returns the model that this block is read with. data: the block as a manifest has it."""
        return cls

    @classmethod
    def unfit_fields(cls, data: Mapping[str, Any]) -> frozenset[tuple[str, ...]]:
        """Returns the paths of fields that the values beside them rule out, so that no hint names
        them. data: the block as a manifest has it, which may be wrong.
        """
        return frozenset()


def _check_text(value: str) -> str:
    if "\0" in value:
        raise ValueError("a text must not hold the NUL character")
    return value


def _match_pattern(
    pattern: re.Pattern[str],
    must: str,
    *,
    chars_max: int = COUNT_MAX,
) -> AfterValidator:
    def check(value: str) -> str:
        if len(value) > chars_max or not pattern.fullmatch(value):
            raise ValueError(must)
        return value

    return AfterValidator(check)


def parameter_name(value: str) -> str:
    """Checks a name. Raises ValueError for an invalid one."""
    if not 0 < len(value) <= PARAMETER_NAME_LENGTH_MAX or "\0" in value or "=" in value:
        raise ValueError("a parameter's name must be 1 to 256 characters, without `=` and NUL")
    return value


def _absolute_path(value: str) -> str:
    _check_text(value)
    plain = "/" + "/".join(part for part in value.split("/") if part)
    if not value.startswith("/") or ".." in value.split("/") or "." in value.split("/"):
        raise ValueError("a path inside the sandbox must be absolute, without `.` and `..`")
    if plain in _RESERVED_PATHS or plain.startswith(("/proc/", "/sys/", "/dev/")):
        raise ValueError("a volume cannot be mounted over `/`, `/proc`, `/sys` or `/dev`")
    if len(plain) > PATH_LENGTH_MAX:
        raise ValueError(f"a path must be at most {PATH_LENGTH_MAX} characters long")
    return plain


def _number_or_text(
    value: Any,
    parse: Any,
    form: str,
) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"it must be {form}")
    return parse(value)


def _read_duration(value: Any) -> Any:
    return _number_or_text(value, parse_duration, DURATION_FORM)


def _read_size(value: Any) -> Any:
    if isinstance(value, float):
        raise ValueError(f"it must be {BYTES_FORM}")
    return _number_or_text(value, parse_bytes, BYTES_FORM)


def _read_cpu(value: Any) -> Any:
    return _number_or_text(value, parse_cpu, CPU_FORM)


Bool = Annotated[bool, Strict()]
ParameterName = Annotated[str, AfterValidator(parameter_name)]
Int = Annotated[int, Strict()]
Float = Annotated[float, Strict()]
Count = Annotated[int, Strict(), Field(ge=0, le=COUNT_MAX)]
PositiveCount = Annotated[int, Strict(), Field(ge=1, le=COUNT_MAX)]
Text = Annotated[str, AfterValidator(_check_text)]
NonEmptyText = Annotated[str, AfterValidator(_check_text), Field(min_length=1)]
Name = Annotated[
    str,
    _match_pattern(
        _NAME,
        "a name must be 1 to 63 lower case letters, digits and `-`, "
        "and begin and end with a letter or digit",
        chars_max=63,
    ),
    WithJsonSchema({"type": "string", "maxLength": 63, "pattern": f"^{_NAME.pattern}$"}),
]
EnvName = Annotated[
    str,
    _match_pattern(
        _ENV_NAME,
        "an environment variable's name must be letters, digits and `_`, "
        "and not begin with a digit",
    ),
    WithJsonSchema({"type": "string", "pattern": f"^{_ENV_NAME.pattern}$"}),
]
CredentialVariable = Annotated[
    str,
    _match_pattern(
        _CREDENTIAL_VARIABLE,
        "it must be the name of an environment variable in capital letters, never the "
        "credential itself",
    ),
    WithJsonSchema({"type": "string", "pattern": f"^{_CREDENTIAL_VARIABLE.pattern}$"}),
]
SandboxPath = Annotated[
    str,
    AfterValidator(_absolute_path),
    WithJsonSchema({"type": "string", "pattern": "^/"}),
]
Duration = Annotated[
    float,
    BeforeValidator(_read_duration),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}, mode="validation"
    ),
]
PositiveDuration = Annotated[Duration, Field(gt=0)]
Size = Annotated[
    int,
    BeforeValidator(_read_size),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]}, mode="validation"
    ),
]
Cpu = Annotated[
    float,
    BeforeValidator(_read_cpu),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]},
        mode="validation",
    ),
]


def env_of(value: Any) -> Any:
    """Returns a list of {name, value} as a mapping; anything else as it is. Raises ValueError."""
    if isinstance(value, list):
        return _of_list(value)
    return value


def _of_list(entries: list[Any]) -> dict[str, Any]:
    env: dict[str, Any] = {}
    for entry in entries:
        if not isinstance(entry, Mapping) or "name" not in entry:
            raise ValueError("each entry of an env list must be {name: ..., value: ...}")
        if "valueFrom" in entry:
            raise ValueError("`valueFrom` is not read; name a Secret object in `secrets` instead")
        if set(entry) != {"name", "value"}:
            raise ValueError("each entry of an env list must be {name: ..., value: ...}")
        if entry["name"] in env:
            raise ValueError(f"the variable `{entry['name']}` is given twice")
        env[entry["name"]] = entry["value"]
    return env


def require_at_most_one(*fields: str, message: str) -> dict[str, Any]:
    """Returns a rule for a model's `json_schema_extra`. fields: as a manifest has them; no field is
    a reserved word of CEL, such as `function`.
    """
    there = [f"has(self.{field})" for field in fields]
    pairs = [f"!({one} && {other})" for at, one in enumerate(there) for other in there[at + 1 :]]
    return {KEY: [{"rule": " && ".join(pairs), "message": message.replace("`", "")}]}


class WhenSpec(Spec):
    """A block with `when`, which was called `on`. Both are declared by each such block."""

    when_needed: ClassVar[bool] = False

    @property
    def named_when(self) -> tuple[Any, ...] | None:
        """Returns the given value, by either name."""
        given: tuple[Any, ...] | None = getattr(self, "when", None)
        if given is not None:
            return given
        return getattr(self, "on", None)

    @model_validator(mode="after")
    def _has_one_name(self) -> WhenSpec:
        if getattr(self, "when", None) is not None and getattr(self, "on", None) is not None:
            raise ValueError("`on` is the old name of `when`; give `when` alone")
        if self.when_needed and self.named_when is None:
            raise ValueError("`when` is missing")
        return self
