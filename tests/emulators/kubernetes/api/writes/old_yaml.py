"""Reads YAML as sigs.k8s.io/yaml does for the server, kubectl, helm and Argo CD: version 1.1, where
`y` and `on` are true, and every key becomes the text of its value.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_SHORT = {"y": True, "n": False}


class _Loader(yaml.CSafeLoader):
    """PyYAML leaves `y` and `n` texts; Go's library does not."""

    bool_values = {**yaml.CSafeLoader.bool_values, **_SHORT}  # noqa: RUF012


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^[yYnN]$"), list("yYnN"))


def read_yaml(body: bytes) -> Any:
    """Raises ValueError."""
    try:
        return _keyed(yaml.load(body, _Loader))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _keyed(value: Any) -> Any:
    if isinstance(value, list):
        return [_keyed(it) for it in value]
    if not isinstance(value, dict):
        return value
    return {_key(key): _keyed(it) for key, it in value.items()}


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
