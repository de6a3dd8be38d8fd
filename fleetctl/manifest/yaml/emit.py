"""Plain data to YAML that the strict reader takes back unchanged. Called by cli for `-o yaml`.

PyYAML quotes by the rules of YAML 1.1: it would write the text `3e-5` bare, which is a number by
those of 1.2. Here whatever `resolve` takes for something else is quoted.
"""

from __future__ import annotations

from typing import Any

import yaml

from fleetctl.manifest.plain import resolve

WIDTH = 100


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes multi-line texts as blocks and repeats what occurs twice: anchors are not read."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def to_yaml(value: object) -> str:
    """The document; its last line end belongs to it."""
    dumped: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH)
    return dumped.removesuffix("...\n")


def _text(dumper: Any, value: str) -> yaml.ScalarNode:
    # YAML is UTF-8, and a path need not be.
    value = value.encode("utf-8", "backslashreplace").decode()
    style = None if _reads_as_text(value) else "'"
    if "\n" in value:
        # libyaml writes blocks that begin or end with blank lines in forms that lose them.
        plain = value[:1].strip() and value.removesuffix("\n")[-1:].strip()
        style = "|" if plain else '"'
    node: yaml.ScalarNode = dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)
    return node


def _reads_as_text(value: str) -> bool:
    try:
        return isinstance(resolve(value), str)
    except ValueError:
        return False


_Dumper.add_representer(str, _text)
