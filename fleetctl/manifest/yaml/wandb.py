"""How W&B reads its sweep files: YAML 1.1, by PyYAML, and exponents without a point are numbers, as
its service takes them. `yes` is true there, `1_000` is 1000, `1:30` is 90, `010` is 8 and `0o17` a
text; a manifest of ours reads each of them otherwise. Aliases stand for what their anchors hold.

Called by includes.py and foreign/text.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import yaml

from fleetctl.manifest.plain import resolve as resolve_ours
from fleetctl.manifest.yaml.reader import Dialect

Scalar = str | int | float | bool | None

_RESOLVER = yaml.resolver.Resolver()
_MAKER = yaml.constructor.SafeConstructor()
_PREFIX = "tag:yaml.org,2002:"
_EXPONENT = re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+")


def resolve(text: str) -> Scalar:
    """The value of a plain scalar. Raises ValueError for a number that cannot be kept exactly."""
    found = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    tag = str(found).removeprefix(_PREFIX)
    if tag == "str" and _EXPONENT.fullmatch(text):
        return _kept(float(text.replace("_", "")))
    # A date, or a merge key, is a text to a search.
    return TAGS[tag](text) if tag in TAGS else text


def _bool(text: str) -> Scalar:
    return bool(_MAKER.construct_yaml_bool(yaml.ScalarNode("", text)))


def _int(text: str) -> Scalar:
    return _kept(_MAKER.construct_yaml_int(yaml.ScalarNode("", text)))


def _float(text: str) -> Scalar:
    return _kept(_MAKER.construct_yaml_float(yaml.ScalarNode("", text)))


def _kept(value: Scalar) -> Scalar:
    resolve_ours(repr(value).replace("inf", ".inf").replace("nan", ".nan"))
    return value


# What a tag makes of a scalar, such as `!!float 3`.
TAGS: Mapping[str, Callable[[str], Scalar]] = {
    "null": lambda _: None,
    "bool": _bool,
    "int": _int,
    "float": _float,
    "str": str,
}

WANDB = Dialect(resolve, TAGS, aliases=True)
