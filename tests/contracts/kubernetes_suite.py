"""The suite of all providers on any cluster: the emulated one of test_provider_kubernetes.py, and a
real one of tests/live.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetctl.specs.blocks.resources import Resources
from fleetctl.specs.blocks.template import Template
from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.provider_worlds import command


def machine_of(pod: Mapping[str, Any]) -> Mapping[str, object]:
    """Returns the limits of a pod's work, as a template has them."""
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    found = Resources.model_validate({"cpu": limits["cpu"], "memory": limits["memory"]})
    return {"cpu": found.cpu, "memory": found.memory}


class KubernetesSuite(ProviderSuite):
    """The suite on any cluster, emulated or not."""

    sort = "kubernetes"

    test_a_task_reaches_the_hosts_of_its_network_alone = None  # refused

    def refused(self) -> Template:
        return command("true", image={"apt": ["git"]})
