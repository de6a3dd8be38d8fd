"""A W&B sweep configuration: it stands in a Sweep verbatim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.manifest.foreign.foreign_mapping import (
    ConversionOptions,
    Converted,
    ForeignMapping,
    build_manifest,
    drop_empty,
    make_name,
)

_SEARCH = (
    "program", "command", "method", "metric", "metrics", "parameters", "run_cap",
    "early_terminate", "description", "project", "entity", "controller", "job", "image_uri",
    "scheduler",
)  # fmt: skip


def convert(sources: Sequence[ForeignMapping], wanted: ConversionOptions) -> Iterator[Converted]:
    for source in sources:
        yield source, _convert_sweep(source, wanted.name)


def _convert_sweep(source: ForeignMapping, name: str) -> dict[str, Any]:
    if "method" not in source or not ("parameters" in source or "scheduler" in source):
        raise UsageError(
            "this is not a W&B sweep configuration: `method` and `parameters` are missing"
        )
    called = source.text("name")
    source.take("apiVersion")
    source.take("kind")
    search = drop_empty({key: source.take(key) for key in _SEARCH})
    template: dict[str, Any] = {}
    if "program" in search or "command" in search:
        # An agent runs in the directory of its files; a trial gets a copy of the directory.
        template = {"source": {"path": "."}}
        source.say("program", "runs in a copy of the manifest's directory (`template.source`)")
        source.say("", "the packages of the program are not known: list them as `image.pip`")
    return build_manifest(
        "Sweep", make_name(called, name), drop_empty({"search": search, "template": template})
    )
