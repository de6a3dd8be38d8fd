"""Writes plain data as YAML that the strict reader takes back unchanged. Called by cli for `-o
yaml`.

PyYAML quotes by the rules of YAML 1.1: it would write the text `3e-5` bare, which is a number by
those of 1.2. Here every text that `resolve_scalar` reads otherwise is quoted, and so are `y` and
`n`, which kubectl reads as true and false and PyYAML does not.
"""

from __future__ import annotations

from typing import Any

import yaml

from fleetctl.manifest.plain_scalars import resolve_scalar

WIDTH = 100
_TRUTHS_OF_KUBECTL = frozenset(("y", "Y", "n", "N"))


class _ManifestDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes multi-line texts as blocks and repeats what occurs twice: anchors are not read."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def to_yaml(value: object) -> str:
    """The document; its last line end belongs to it."""
    dumped: str = yaml.dump(
        value,
        Dumper=_ManifestDumper,
        sort_keys=False,
        allow_unicode=True,
        width=WIDTH,
    )
    return dumped.removesuffix("...\n")


def _represent_text(dumper: Any, value: str) -> yaml.ScalarNode:
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
    if value in _TRUTHS_OF_KUBECTL:
        return False
    try:
        return isinstance(resolve_scalar(value), str)
    except ValueError:
        return False


_ManifestDumper.add_representer(str, _represent_text)
