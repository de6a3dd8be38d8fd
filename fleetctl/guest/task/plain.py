"""Makes JSON of the values that programs have: paths, times, arrays, dataclasses and so on, with
remarks on replaced parts, and nested metrics under dotted names.

Called for values that JSON does not know, by SUBMIT of tasks and of interpreters, and for metrics,
which a task reports or writes as lines of $FLEETCTL_METRICS. Recognises libraries by the abilities
of their values and imports none. The table of the rules is in the docs,
reference/results-and-metrics.md.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Union


ARRAY_VALUES_MAX = 64 * 1024  # at two characters each these fill half of a result
BYTES_MAX = 96 * 1024  # half of what a result may have, as base64
REPR_CHARACTERS_MAX = 1000
MISSING = ("NaTType", "NAType")  # of pandas: no time, no value

NODES_MAX = 256 * 1024  # a result with more cannot be kept anyway
NAMED_MAX = 3


NAMES = ("NaN", "Infinity", "-Infinity")

LEVELS_MAX = 8  # of nested metrics


class Unkeepable(TypeError):
    """A value without any JSON form."""


class NoRule(TypeError):
    """A value without a rule; its repr is stored instead."""


def replace_value(value: Any) -> Any:
    """Returns the value's replacement, which may hold further values of any sort. Raises Unkeepable
    and NoRule.
    """
    for rule in _RULES:
        found = rule(value)
        if found is not _NO:
            return found
    raise NoRule(f"a value of type {type(value).__name__}")


def shorten_repr(value: Any) -> str:
    """Returns the value's repr, cut. Raises Unkeepable."""
    try:
        text = repr(value)
    except Exception as error:  # a repr of the user's may raise anything
        raise Unkeepable(
            f"a value of type {type(value).__name__}, whose repr fails: {error}"
        ) from None
    if len(text) <= REPR_CHARACTERS_MAX:
        return text
    return text[:REPR_CHARACTERS_MAX] + "…"


def key_text(key: Any) -> Any:
    """Returns a key of an object: as it is where JSON knows it, else as text."""
    if key is None or isinstance(key, (str, int, float)):
        return key
    try:
        found = replace_value(key)
    except TypeError:
        return shorten_repr(key)
    if isinstance(found, (str, int, float)):
        return found
    return str(key)


def _plain_missing(value: Any) -> Any:
    if type(value).__name__ in MISSING:
        return None
    return _NO


def _plain_scalar(value: Any) -> Any:
    """Converts scalars of numpy, torch and their like, and complex numbers."""
    if isinstance(value, complex):
        return str(value)
    sort = type(value).__name__
    if sort in ("datetime64", "timedelta64"):
        if str(value) == "NaT":
            return None
        return str(value)
    if getattr(value, "ndim", None) == 0 and callable(getattr(value, "item", None)):
        item = value.item()
        if item is value:
            return _NO
        return item
    return _NO


def _plain_decimal(value: Any) -> Any:
    """Returns a number where a float is exact, else the digits as text."""
    known = sys.modules.get("decimal")
    if known is None or not isinstance(value, known.Decimal):
        return _NO
    if value.is_nan():
        return float("nan")
    if value == value.to_integral_value() and abs(value) < 1 << 53:
        return int(value)
    near = float(value)
    same = near - near != 0 or known.Decimal(repr(near)) == value
    if same:
        return near
    return str(value)


def _plain_enum(value: Any) -> Any:
    known = sys.modules.get("enum")
    if known is not None and isinstance(value, known.Enum):
        return value.value
    return _NO


def _plain_path(value: Any) -> Any:
    if not hasattr(type(value), "__fspath__"):
        return _NO
    return os.fsdecode(os.fspath(value))


def _plain_time(value: Any) -> Any:
    """Converts times to ISO 8601, and lengths of time to seconds."""
    for name in ("total_seconds", "isoformat"):
        method = getattr(value, name, None)
        if callable(method) and not isinstance(value, type):
            return method()
    return _NO


def _plain_text(value: Any) -> Any:
    known = sys.modules.get("uuid")
    if known is not None and isinstance(value, known.UUID):
        return str(value)
    known = sys.modules.get("fractions")
    if known is not None and isinstance(value, known.Fraction):
        return str(value)
    return _NO


def _plain_bytes(value: Any) -> Any:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        return _NO
    data = bytes(value)
    if len(data) > BYTES_MAX:
        raise Unkeepable(f"{len(data)} bytes; at most {BYTES_MAX} are kept, as base64")
    import binascii

    return binascii.b2a_base64(data, newline=False).decode()


def _plain_fields(value: Any) -> Any:
    """Converts dataclasses, attrs, namespaces, pydantic models of both versions."""
    sort = type(value)
    names = getattr(sort, "__dataclass_fields__", None)
    if names is None and hasattr(sort, "__attrs_attrs__"):
        names = [it.name for it in sort.__attrs_attrs__]
    if names is not None:
        return {name: getattr(value, name) for name in names if hasattr(value, name)}
    if sort.__name__ in ("Namespace", "SimpleNamespace"):  # of argparse and types
        return dict(vars(value))
    if callable(getattr(sort, "model_dump", None)):
        return value.model_dump()
    if hasattr(sort, "__fields__") and callable(getattr(sort, "dict", None)):
        return value.dict()
    return _NO


def _plain_array(value: Any) -> Any:
    """Converts arrays of numpy, torch, jax and tensorflow; tables of pandas and polars."""
    dimensions = getattr(value, "ndim", None)
    if not isinstance(dimensions, int) or isinstance(value, type):
        table = getattr(value, "to_dicts", None)
        if table is None:
            return _NO
        return _small_list(value, table)
    if callable(getattr(value, "tolist", None)):
        return _small_list(value, value.tolist)
    if callable(getattr(value, "to_dict", None)):
        return _small_list(value, lambda: value.to_dict("records"))
    if callable(getattr(value, "numpy", None)):
        return _small_list(value, value.numpy)
    return _NO


def _small_list(value: Any, make: Any) -> Any:
    """Makes the list of a small value; a large list takes more memory than its array."""
    count = 1
    for length in getattr(value, "shape", ()):
        count *= int(length)
    if count > ARRAY_VALUES_MAX:
        shape = " x ".join(str(length) for length in value.shape)
        raise Unkeepable(
            f"a {type(value).__name__} of {count} values ({shape}); at most {ARRAY_VALUES_MAX}"
            " are kept"
        )
    return make()


def _plain_collection(value: Any) -> Any:
    """Converts sets, sorted where they can be; mappings; other ordered values with a length."""
    if isinstance(value, (set, frozenset)):
        try:
            return sorted(value)
        except TypeError:
            return sorted(value, key=repr)
    sort = type(value)
    if isinstance(value, type) or not hasattr(sort, "__len__") or not hasattr(sort, "__iter__"):
        return _NO
    if hasattr(sort, "keys") and hasattr(sort, "__getitem__"):
        return {key: value[key] for key in value}
    return list(value)


_NO: Any = object()
_RULES = (
    _plain_missing,
    _plain_scalar,
    _plain_decimal,
    _plain_enum,
    _plain_path,
    _plain_time,
    _plain_text,
    _plain_bytes,
    _plain_fields,
    _plain_array,
    _plain_collection,
)


class ResultCopy:
    """A copier of one value. remarks: sentences about replaced parts."""

    def __init__(self) -> None:
        self._null: list[str] = []
        self._other: list[str] = []
        self._left = 0

    @property
    def remarks(self) -> list[str]:
        texts = (
            (self._null, ", which JSON cannot hold: kept as null"),
            (self._other, ": kept as its repr"),
        )
        return [_list_names(found) + text for found, text in texts if found]

    def made(self, one: Any, path: str = "") -> Any:
        """Returns the copy. path: of the value, for messages. Raises Unkeepable."""
        self._left = NODES_MAX
        try:
            return self._copy_value(one, path, ())
        except RecursionError:
            raise Unkeepable(f"it is nested more than {DEPTH_MAX} deep") from None

    def _copy_value(
        self,
        one: Any,
        path: str,
        above: tuple[int, ...],
    ) -> Any:
        """Returns the copy. above: ids of the values that contain it."""
        self._left -= 1
        if self._left < 0:
            raise Unkeepable(f"more than {NODES_MAX} values")
        if id(one) in above:
            raise Unkeepable("it holds itself")
        if len(above) > DEPTH_MAX:
            raise Unkeepable(f"it is nested more than {DEPTH_MAX} deep")
        if one is None or isinstance(one, (bool, int)):
            return one
        if isinstance(one, str):
            return escape_surrogates(one)
        if isinstance(one, float):
            if one - one == 0:
                return one
            self._null.append(f"`{path.lstrip('.') or 'it'}` is {float(one)}")
            return None
        return self._copy_parts(one, path, (*above, id(one)))

    def _copy_parts(
        self,
        one: Any,
        path: str,
        below: tuple[int, ...],
    ) -> Any:
        if isinstance(one, dict):
            parts = ((_escape_key(key), it) for key, it in one.items())
            return {key: self._copy_value(it, f"{path}.{key}", below) for key, it in parts}
        if isinstance(one, (list, tuple)):
            return [self._copy_value(it, f"{path}[{at}]", below) for at, it in enumerate(one)]
        try:
            found = replace_value(one)
        except NoRule as error:
            self._other.append(f"`{path.lstrip('.') or 'it'}` is {error}")
            return escape_surrogates(shorten_repr(one))
        except Unkeepable:
            raise
        except Exception as error:  # raised by its own methods
            raise Unkeepable(f"a value of type {type(one).__name__}: {error!r}") from None
        return self._copy_value(found, path, below)


def escape_surrogates(text: str) -> str:
    """Escapes halves of surrogate pairs, as decoding by `surrogateescape` leaves them."""
    try:
        text.encode("utf-8")
    except UnicodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def encode_number(value: float) -> Union[float, str]:
    """Returns a metric's value as a journal has it: a value that is not finite is written by its
    name, which `float` reads.
    """
    if value - value == 0:
        return value
    if value != value:
        return NAMES[0]
    if value > 0:
        return NAMES[1]
    return NAMES[2]


def _escape_key(key: Any) -> Any:
    found = key_text(key)
    if isinstance(found, str):
        return escape_surrogates(found)
    return found


def _list_names(found: list[str]) -> str:
    more = f" and {len(found) - NAMED_MAX} more like it" if len(found) > NAMED_MAX else ""
    return ", ".join(found[:NAMED_MAX]) + more


DEPTH_MAX = 32  # of a result


def flat_metrics(
    values: dict[str, Any], number: Callable[[Any], Optional[float]]
) -> tuple[dict[str, float], list[tuple[str, Any]]]:
    """Flattens nested metrics to dotted names: `{"val": {"loss": 1}}` is `val.loss`, as wandb has
    it. Returns (the numbers, names and other values). number: converts a value; None for others.
    """
    kept: dict[str, float] = {}
    left_out: list[tuple[str, Any]] = []

    def take(
        name: str,
        value: Any,
        level: int,
    ) -> None:
        if isinstance(value, dict) and level < LEVELS_MAX:
            for key, inner in value.items():
                take(f"{name}.{key}", inner, level + 1)
            return
        found = number(value)
        if found is None:
            left_out.append((name, value))
        else:
            kept[name] = found

    for name, value in values.items():
        take(name, value, 0)
    return kept, left_out
