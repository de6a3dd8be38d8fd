"""What `local` means in a cluster, in each place where a manifest can say it."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.operator.mirror.applier import replace_local
from fleetctl.specs.kinds.registry import KINDS

THERE = "kubernetes"
LOCAL, CLOUD = {"provider": "local"}, {"provider": "modal", "maxPricePerHour": 2}
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("BatchJob", {}, {"placement": {"provider": THERE}}),
    ("BatchJob", {"placement": LOCAL}, {"placement": {"provider": THERE}}),
    ("BatchJob", {"placement": CLOUD}, {"placement": CLOUD}),
    (
        "Sweep",
        {"placement": {"ordered": [LOCAL, CLOUD]}},
        {"placement": {"ordered": [{"provider": THERE}, CLOUD]}},
    ),
    (
        "Sweep",
        {"placement": {"anyOf": [{"provider": THERE}, CLOUD, LOCAL]}},
        {"placement": {"anyOf": [{"provider": THERE}, CLOUD]}},
    ),
    ("BatchJob", {"template": {"prompt": {}}}, {"template": {"prompt": {}}}),
    (
        "TrainingRun",
        {"placement": CLOUD, "stages": [{"name": "a"}, {"name": "b", "placement": LOCAL}]},
        {
            "placement": CLOUD,
            "stages": [{"name": "a"}, {"name": "b", "placement": {"provider": THERE}}],
        },
    ),
    ("Volume", {"size": 1}, {"size": 1, "provider": THERE}),
    ("Volume", {"provider": "modal"}, {"provider": "modal"}),
    ("Secret", {"fromEnv": ["A"]}, {"fromEnv": ["A"]}),
    ("Budget", {"maxCost": 1}, {"maxCost": 1}),
]


@pytest.mark.parametrize(("kind", "spec", "made"), CASES)
def test_local_means_another_provider(
    kind: str, spec: dict[str, Any], made: dict[str, Any]
) -> None:
    assert replace_local(kind, spec, THERE, runs=KINDS[kind].runs) == made
    assert replace_local(kind, spec, "local", runs=KINDS[kind].runs) == spec
