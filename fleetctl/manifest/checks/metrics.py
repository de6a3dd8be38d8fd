"""Finds a metric that a search compares and that its trials can never print."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetctl.common.finding import Finding, Path, Severity
from fleetctl.manifest.problems import shorten_text
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.values.metrics import NAME, STEP

PATH: Path = ("spec", "template", "metrics", "regex")


def find_doubts(spec: SweepSpec) -> Iterator[Finding]:
    """Yields warnings: the metric may be reported otherwise, so this is not a mistake
    for certain.
    """
    if spec.template is None or spec.search.metric is None:
        return
    asked = spec.template.metrics
    wanted = spec.search.metric.name
    if asked is None or asked.regex is None or spec.template.python is not None:
        return
    names = re.compile(asked.regex).groupindex.keys() - {STEP}
    if not names or NAME in names or wanted in names:
        return
    text = ", ".join(f"`{it}`" for it in sorted(names))
    message = f" names {text}, and the search compares `{shorten_text(wanted)}`"
    hint = (
        f"write `(?P<{wanted}>...)`"
        if wanted.isidentifier()
        else "find its name too: `(?P<name>[\\w/.]+)=(?P<value>[-+.\\w]+)`"
    )
    yield Finding(PATH, message, f"{hint}, or fix `search.metric.name`", Severity.DOUBT)
