"""What a provider does not join, and what would help, by its contract alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.providers.local.provider import CONTRACT
from fleetctl.specs.blocks.nodes import Nodes, Ray, with_nodes
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
    template = with_nodes(work, Nodes(min=nodes, max=nodes), None, Ray(enabled=ray), rdma=rdma)
    why = contract.cannot_join("there", template)
    assert bool(why) == bool(hint)
    if why:
        assert contract.joins_hint(template) == hint
        assert f"`{contract.joins_field(template)}" in hint
