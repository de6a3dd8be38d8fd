"""The suite of the guest without Python, which runs where an image of a registry needs none: all
about fields of a template that it carries out by itself. Fields that need Python beside the work
(`python`, `metrics`, `services`, `outputs`, `endpoints`) bring the other guest to any image.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetctl.providers.contract.base import RunRequest
from fleetctl.specs.blocks.template import Image, Template
from tests.contracts.provider_fields import ProviderFields
from tests.contracts.provider_sources import ProviderSources
from tests.contracts.provider_worlds import World


class WithoutPython(ProviderFields, ProviderSources):
    """`world` builds the provider, by `without_python`."""

    # The other guest's alone.
    test_a_machine_has_room_for_its_services = None
    test_a_task_calls_the_gateway_of_its_endpoints = None
    test_a_task_has_no_metrics_of_the_one_before_in_its_copy_of_the_source = None
    # The provider's alone, whatever guest it brings.
    test_a_machine_has_the_resources_of_its_template = None
    test_a_task_reaches_the_hosts_of_its_network_alone = None

    def world(self, tmp_path: Path) -> World:
        raise NotImplementedError


def without_python(base: type[Any]) -> type[World]:
    """Returns the worlds of `base` whose work is in an image of a registry."""

    class BareWorld(base):  # type: ignore[misc]
        def order(
            self, template: Template | None = None, *, run: str = "run-0", **changes: Any
        ) -> RunRequest:
            assert template is not None and not template.needs_python
            image = (template.image or Image()).model_copy(update={"registry": "alpine:3.20"})
            bare = template.model_copy(update={"image": image})
            made: RunRequest = super().order(bare, run=run, **changes)
            return made

    return BareWorld
