"""The table of a pod's fields equals that of the pinned package `kubernetes`, and is written by
`FLEETCTL_GOLDEN=write pytest tests/unit/specs/test_specs_pod_fields.py; ruff format specs`.
"""

from __future__ import annotations

import datetime
import os
import textwrap
import typing
from pathlib import Path
from types import UnionType
from typing import Any

import fleetctl.specs.values
from fleetctl.specs.values import pod_shape

PATH = Path(fleetctl.specs.values.__path__[0]) / "pod_fields.py"
HEAD = '''"""The fields of a pod's template, by type, as Kubernetes {version} has them. Pure data.

Made from the package `kubernetes` by tests/unit/specs/test_specs_pod_fields.py. A word is
`NAME:TYPE`, with `!` behind what must be there; `[T]` is a list, `{{T}}` a mapping from texts.
"""

FIELDS = {{
'''
# In the description of the API these are texts; what is written in YAML may be a number as well.
_AMOUNTS = {"limits", "requests", "sizeLimit", "divisor", "allocatedResources"}
_PLAIN = {str: "text", bool: "flag", int: "number", float: "number", object: "any"}


def _word(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Annotated:
        return _word(typing.get_args(hint)[0])
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, UnionType):
        forms = [_word(it) for it in inner if it is not type(None)]
        return forms[0] if len(forms) == 1 else "amount"
    if origin is list:
        return f"[{_word(inner[0])}]"
    if origin is dict:
        return "{" + _word(inner[1]) + "}"
    if hint is datetime.datetime:
        return "text"
    if hint is Any:
        return "any"
    return _PLAIN.get(hint) or str(hint.__name__).removeprefix("V1")


def _model(name: str) -> Any:
    from kubernetes.client import models

    return getattr(models, f"V1{name}", None) or getattr(models, name, None)


def _called(about: Any, field: str) -> str:
    """In a manifest."""
    return str(about.serialization_alias or about.alias or field)


def table() -> dict[str, str]:
    found: dict[str, str] = {}
    left = ["PodTemplateSpec"]
    while left:
        name = left.pop()
        if name in found:
            continue
        words = []
        for field, about in _model(name).model_fields.items():
            called = _called(about, field)
            word = _word(about.annotation)
            if called in _AMOUNTS:
                word = word.replace("text", "amount")
            words.append(f"{called}:{word}{'!' if about.is_required() else ''}")
            inner = word.strip("[]{}")
            if _model(inner) is not None:
                left.append(inner)
        found[name] = " ".join(words)
    return dict(sorted(found.items()))


def text() -> str:
    from importlib.metadata import version

    lines = [HEAD.format(version=f"1.{version('kubernetes').partition('.')[0]}")]
    for name, words in table().items():
        if len(f'    "{name}": "{words}",') <= 100:
            lines.append(f'    "{name}": "{words}",\n')
            continue
        lines.append(f'    "{name}": (\n')
        parts = textwrap.wrap(words, 88)
        for number, part in enumerate(parts):
            space = " " if number < len(parts) - 1 else ""
            lines.append(f'        "{part}{space}"\n')
        lines.append("    ),\n")
    return "".join([*lines, "}\n"])


def test_the_table_is_what_the_package_says() -> None:
    if os.environ.get("FLEETCTL_GOLDEN") == "write":
        PATH.write_text(text())
    assert table() == pod_shape.FIELDS
