"""Reads W&B's sweep files as W&B does: YAML 1.1, by PyYAML, and exponents without a point are
numbers, as its service takes them. `yes` is true there, `1_000` is 1000, `1:30` is 90, `010` is 8
and `0o17` a text; a manifest of ours reads each of these otherwise. Aliases stand for the content
of their anchors.

Called by includes.py and foreign/foreign_yaml.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import yaml

from fleetctl.manifest.plain_scalars import resolve_scalar as resolve_ours
from fleetctl.manifest.yaml.reader import YamlDialect

Scalar = str | int | float | bool | None

_RESOLVER = yaml.resolver.Resolver()
_MAKER = yaml.constructor.SafeConstructor()
_PREFIX = "tag:yaml.org,2002:"
_EXPONENT = re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+")


def resolve_wandb_scalar(text: str) -> Scalar:
    """The value of a plain scalar. Raises ValueError for a number that cannot be kept exactly."""
    found = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
    tag = str(found).removeprefix(_PREFIX)
    if tag == "str" and _EXPONENT.fullmatch(text):
        return _check_range(float(text.replace("_", "")))
    # A date, or a merge key, is a text to a search.
    if tag in TAGS:
        return TAGS[tag](text)
    return text


def _parse_bool(text: str) -> Scalar:
    return bool(_MAKER.construct_yaml_bool(yaml.ScalarNode("", text)))


def _parse_int(text: str) -> Scalar:
    return _check_range(_MAKER.construct_yaml_int(yaml.ScalarNode("", text)))


def _parse_float(text: str) -> Scalar:
    return _check_range(_MAKER.construct_yaml_float(yaml.ScalarNode("", text)))


def _check_range(value: Scalar) -> Scalar:
    resolve_ours(repr(value).replace("inf", ".inf").replace("nan", ".nan"))
    return value


# The value of a scalar with a tag, such as `!!float 3`.
TAGS: Mapping[str, Callable[[str], Scalar]] = {
    "null": lambda _: None,
    "bool": _parse_bool,
    "int": _parse_int,
    "float": _parse_float,
    "str": str,
}

WANDB = YamlDialect(resolve_wandb_scalar, TAGS, aliases=True)
