"""Who depends on whom, read of specs with and without models; circles; and how it is drawn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleetctl.cli.report.graph_drawings import draw_rows
from fleetctl.controllers.depends.dependency_status import DependencyState, get_dependency_status
from fleetctl.controllers.depends.edges import Node, circle_from, edges_in, edges_of
from fleetctl.controllers.depends.results import ResultParameters, rows_in
from fleetctl.controllers.model import Resource
from fleetctl.specs.blocks.depends import Dependency
from fleetctl.specs.kinds.registry import KINDS, dump_spec
from fleetctl.views.graph import DependencyGraph, build_graph, split_layers
from fleetctl.views.graph import GraphNode as Drawn

TEMPLATE = {"script": "x"}
SEARCH = {
    "method": "bayes",
    "run_cap": 3,
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"x": {"min": 0.0, "max": 1.0}},
    "priorTrials": {"fromSweep": "s"},
}


@pytest.mark.parametrize(
    ("kind", "spec", "nodes"),
    [
        (
            "BatchJob",
            {
                "dependsOn": [{"job": "a"}, {"trainingrun": "t", "condition": "Failed"}],
                "tasks": {"fromResults": {"job": "b"}},
                "paramsFrom": {"sweep": "s"},
            },
            [("BatchJob", "a"), ("TrainingRun", "t"), ("BatchJob", "b"), ("Sweep", "s")],
        ),
        ("Sweep", {"search": SEARCH}, [("Sweep", "s")]),
        ("TrainingRun", {"dependsOn": [{"sweep": "s"}]}, [("Sweep", "s")]),
        ("BatchJob", {"completions": 2}, []),
    ],
)
def test_edges_are_the_same_of_a_spec_and_of_what_is_stored_of_it(
    kind: str, spec: dict[str, Any], nodes: list[Node]
) -> None:
    checked = KINDS[kind].spec.model_validate({"template": TEMPLATE, **spec})
    found = edges_of(checked)
    assert found == edges_in(json.loads(dump_spec(checked)))
    assert [it.node for it in found] == nodes


@pytest.mark.parametrize(
    ("edges", "circle"),
    [
        ({"a": "b", "b": "c", "c": "a"}, "abc"),
        ({"a": "a"}, "a"),
        ({"a": "bc", "b": "d", "c": "d"}, ""),
        ({"a": "b", "b": "c", "c": "b"}, ""),  # others are in it
        ({"a": "bd", "b": "c", "c": "a", "d": "a"}, "ad"),
    ],
)
def test_the_shortest_circle_is_found_from_an_object_that_is_in_it(
    edges: dict[str, str], circle: str
) -> None:
    def next_of(node: Node) -> list[Node]:
        return [("BatchJob", name) for name in edges.get(node[1], "")]

    found = circle_from(("BatchJob", "a"), next_of)
    assert "".join(name for _, name in found) == circle


def test_a_chain_of_ten_thousand_is_walked() -> None:
    def next_of(node: Node) -> list[Node]:
        number = int(node[1])
        return [("BatchJob", str((number + 1) % 10_000))]

    assert len(circle_from(("BatchJob", "0"), next_of)) == 10_000


@pytest.mark.parametrize(
    ("generation", "phase", "state"),
    [
        (2, "Succeeded", DependencyState.MET),
        (1, "Succeeded", DependencyState.WAITING),  # of the spec before
        (1, "Failed", DependencyState.WAITING),
        (2, "Running", DependencyState.WAITING),
        (2, "Failed", DependencyState.FAILED),
        (2, "Skipped", DependencyState.SKIPPED),
    ],
)
def test_a_dependency_stands_as_it_came_out_under_its_present_spec(
    generation: int, phase: str, state: DependencyState
) -> None:
    status = json.dumps({"observedGeneration": generation, "phase": phase})
    row = Resource("u", "BatchJob", "a", 2, 1, "{}", status, {}, {}, 1.0)
    found = get_dependency_status(Dependency(job="a"), "default", row)
    assert found.state is state


def test_what_was_taken_is_read_back() -> None:
    taken = ResultParameters({7: {"a": 1}, 9: {"b": [2]}}, "uid", 3, "said", stale=True)
    assert rows_in(taken.text()) == taken
    assert rows_in("") is None


def drawn(**depends: str) -> DependencyGraph:
    specs = {
        f"batchjob/{name}": ("default", {"dependsOn": [{"job": it} for it in on]})
        for name, on in depends.items()
    }
    return build_graph([Drawn(key, "Pending", "0/1") for key in specs], specs)


def test_an_object_that_depends_on_several_stands_below_the_first_and_is_named_below_the_rest() -> (
    None
):
    found = [(cells[0], cells[1]) for cells in draw_rows(drawn(d="bc", b="a", c="a", a=""))]
    assert found == [
        ("batchjob/a", "Pending"),
        ("|-- batchjob/b", "Pending"),
        ("|   `-- batchjob/d", "Pending"),
        ("`-- batchjob/c", "Pending"),
        ("    `-- batchjob/d", "see above"),
    ]


def test_what_is_missing_is_drawn_and_what_stands_alone_is_not() -> None:
    found = drawn(b="a", alone="")
    assert [(it.key, it.state) for it in found.nodes] == [
        ("batchjob/a", "Missing"),
        ("batchjob/b", "Pending"),
    ]


def test_a_layer_depends_on_earlier_layers_alone() -> None:
    found = split_layers(drawn(d="ab", c="a", b="a", a=""))
    assert [[it.key[-1] for it in layer] for layer in found] == [["a"], ["c", "b"], ["d"]]


def test_a_circle_is_drawn_all_the_same() -> None:
    assert {cells[0].lstrip("|`- ") for cells in draw_rows(drawn(a="b", b="a"))} == {
        "batchjob/a",
        "batchjob/b",
    }
