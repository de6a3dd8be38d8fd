"""What a provider does not join, and what would help, by its contract alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.providers.local.local_provider import CONTRACT
from fleetctl.specs.blocks.nodes import NodeRange, Ray, with_nodes
from fleetctl.specs.blocks.template import Template

ONE_MACHINE = replace(CONTRACT, nodes_max=1, ray=False)


@pytest.mark.parametrize(
    ("contract", "nodes", "ray", "rdma", "hint"),
    [
        (CONTRACT, 2, False, True, "leave `rdma` out, or place it elsewhere"),
        (ONE_MACHINE, 2, False, False, "use `nodes: 1`, or place it elsewhere"),
        (ONE_MACHINE, 1, True, False, "leave `ray` out, or place it elsewhere"),
        (CONTRACT, 2, True, False, ""),
    ],
)
def test_the_hint_names_the_field_that_is_in_the_way(
    contract: object, nodes: int, ray: bool, rdma: bool, hint: str
) -> None:
    assert isinstance(contract, type(CONTRACT))
    work = Template(command=("train",))
    template = with_nodes(work, NodeRange(min=nodes, max=nodes), None, Ray(enabled=ray), rdma=rdma)
    why = contract.cannot_join("there", template)
    assert bool(why) == bool(hint)
    if why:
        assert contract.joins_hint(template) == hint
        assert f"`{contract.joins_field(template)}" in hint


MIB = 1024 * 1024
REMOTE = replace(CONTRACT, inputs_bytes_max=8 * MIB)


@pytest.mark.parametrize(
    ("fields", "size", "why"),
    [
        ({}, 8 * MIB, ""),
        ({}, 8 * MIB + 1, "brings at most 8 MiB of files to a task, and one has 8.0 MiB"),
        ({"runtime": "function"}, 2 * MIB, "at most 1 MiB of files to a task in a function"),
        ({"image": {"registry": "r"}}, 2 * MIB, "to a task in an image without `python`"),
        ({"image": {"registry": "r", "python": "3.12"}}, 2 * MIB, ""),
        ({"image": {"registry": "r"}}, MIB, ""),
    ],
)
def test_files_that_are_too_large_for_a_provider_are_named_with_its_limit(
    fields: dict[str, object], size: int, why: str
) -> None:
    template = Template.model_validate({"script": "work", **fields})
    assert why in REMOTE.cannot_bring("there", size, template)
    assert bool(REMOTE.cannot_bring("there", size, template)) == bool(why)
    assert CONTRACT.cannot_bring("here", size, template) == ""
