from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fleetctl.specs.search.config import Search
from fleetctl.specs.search.distributions import DISTRIBUTIONS, distribution_of

BASE: dict[str, Any] = {"method": "random", "parameters": {"a": {"value": 1}}}


def search(**changes: Any) -> Search:
    return Search.model_validate({**BASE, **changes}, by_alias=True, by_name=False)


def places(**changes: Any) -> set[str]:
    """Where a configuration is wrong."""
    with pytest.raises(ValidationError) as caught:
        search(**changes)
    return {".".join(map(str, it["loc"])) for it in caught.value.errors()}


def parameter_places(parameter: Any, *, method: str = "random") -> set[str]:
    return {
        it.removeprefix("parameters.a").removeprefix(".")
        for it in places(method=method, parameters={"a": parameter})
    }


def test_the_whole_schema_of_wandb_is_accepted() -> None:
    full = search(
        apiVersion="1.0",
        kind="sweep",
        controller={"type": "local"},
        description="about it",
        program="train.py",
        job="entity/project/job:latest",
        entity="me",
        project="mine",
        method="bayes",
        command=["${env}", "python", "${program}", "${args}"],
        name="lr",
        run_cap=10,
        metric={
            "name": "train/roll/ep_rew/mean",
            "goal": "maximize",
            "target": 475,
            "impute": "best",
            "impute_while_running": False,
        },
        scheduler={"engine": "optuna", "source": "x.py"},
        early_terminate={"type": "hyperband", "min_iter": 3, "eta": 3, "strict": True},
    )
    assert full.metric is not None
    assert (full.metric.name, full.metric.target) == ("train/roll/ep_rew/mean", 475)


@pytest.mark.parametrize("name", [it.name for it in DISTRIBUTIONS.values() if not it.instead])
def test_every_distribution_is_accepted_with_the_keys_that_it_needs(name: str) -> None:
    values: dict[str, Any] = {
        "value": 1,
        "values": [1, 2],
        "probabilities": [0.25, 0.75],
        "min": 1,
        "max": 4,
    }
    distribution = DISTRIBUTIONS[name]
    needed = {key: values[key] for key in distribution.needs}
    assert search(parameters={"a": {"distribution": name, **needed}}).parameters is not None
    full = {**needed, **dict.fromkeys(distribution.defaults, 2)}
    assert search(parameters={"a": {"distribution": name, **full}}).parameters is not None
    for key in needed:
        rest = {it: value for it, value in needed.items() if it != key}
        assert parameter_places({"distribution": name, **rest}) == {""}
    assert parameter_places({"distribution": name, **full, "other": 1}) == {"other"}


@pytest.mark.parametrize(
    ("parameter", "name"),
    [
        ({"value": None}, "constant"),
        ({"values": ["a", 1, None, [32, 32]]}, "categorical"),
        ({"values": [1, 2], "probabilities": [0.5, 0.5]}, "categorical_w_probabilities"),
        ({"min": 1, "max": 5}, "int_uniform"),
        ({"min": 0.1, "max": 5.0}, "uniform"),
        ({"min": 1, "max": 5, "distribution": "uniform"}, "uniform"),
    ],
)
def test_a_distribution_is_inferred_from_the_keys(parameter: dict[str, Any], name: str) -> None:
    found = distribution_of(parameter)
    assert found is not None
    assert found.name == name
    assert search(parameters={"a": parameter}).parameters == {"a": parameter}


@pytest.mark.parametrize(
    ("parameter", "place"),
    [
        (3, ""),
        (None, ""),
        ({}, ""),
        ({"min": 1}, ""),
        ({"min": 1, "max": 2.0}, ""),
        ({"min": True, "max": False}, ""),
        ({"values": []}, "values"),
        ({"values": 3}, "values"),
        ({"value": 1, "values": [1]}, "values"),
        ({"min": 2, "max": 2}, "min"),
        ({"min": 3.0, "max": 2.0}, "min"),
        ({"min": "1", "max": 2, "distribution": "uniform"}, "min"),
        ({"min": 0, "max": 2, "distribution": "log_uniform_values"}, "min"),
        ({"min": 0.5, "max": 2, "distribution": "int_uniform"}, "min"),
        ({"min": 1, "max": 2, "distribution": "log_uniform"}, "distribution"),
        ({"distribution": "gauss"}, "distribution"),
        ({"distribution": 3}, "distribution"),
        ({"distribution": "normal", "sigma": 0}, "sigma"),
        ({"distribution": "beta", "a": -1}, "a"),
        ({"distribution": "q_uniform", "min": 0, "max": 1, "q": 0}, "q"),
        ({"values": [1, 2], "probabilities": [0.5, 0.6]}, "probabilities"),
        ({"values": [1, 2], "probabilities": [1]}, "probabilities"),
        ({"values": [1, 2], "probabilities": [2, -1]}, "probabilities"),
        ({"parameters": {}}, "parameters"),
        ({"parameters": {"b": {"values": []}}}, "parameters.b.values"),
        ({"parameters": {"b": {"value": 1}}, "value": 2}, "value"),
    ],
)
def test_what_is_wrong_with_a_parameter_is_found_at_its_place(parameter: Any, place: str) -> None:
    assert parameter_places(parameter) == {place}


def test_a_grid_refuses_what_it_cannot_count() -> None:
    continuous = {"min": 0.0, "max": 1.0}
    assert parameter_places(continuous, method="grid") == {""}
    assert parameter_places({"parameters": {"b": continuous}}, method="grid") == {"parameters.b"}
    odds = {"values": [1, 2], "probabilities": [0.5, 0.5]}
    assert parameter_places(odds, method="grid") == {""}
    for fine in ({"min": 1, "max": 3}, {"distribution": "q_uniform", "min": 0, "max": 1, "q": 0.5}):
        assert search(method="grid", parameters={"a": fine}).method == "grid"


def test_names_of_parameters_are_those_of_wandb() -> None:
    fine = {name: {"value": 1} for name in ("lr", "_x", "a.b-c", "A1")}
    assert search(parameters=fine).parameters == fine
    for name in ("1a", "a b", "", "é"):
        assert places(parameters={name: {"value": 1}}) == {f"parameters.{name}"}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"method": "hyperopt"}, "method"),
        ({"parameters": None}, ""),
        ({"parameters": {}}, "parameters"),
        ({"run_cap": 0}, "run_cap"),
        ({"runCap": 3}, "runCap"),
        ({"imports": []}, "imports"),
        ({"metric": {"goal": "maximize"}}, "metric.name"),
        ({"metric": {"name": "x", "impute": "mean"}}, "metric.impute"),
        ({"metrics": [{"name": "a"}, {"name": "b"}]}, ""),
        ({"method": "bayes"}, ""),
        ({"early_terminate": {"type": "hyperband"}}, "early_terminate"),
        ({"early_terminate": {"type": "hyperband", "max_iter": 9}}, "early_terminate"),
        (
            {"early_terminate": {"type": "hyperband", "min_iter": 1, "eta": 1}},
            "early_terminate.eta",
        ),
        ({"early_terminate": {"type": "envelope", "min_iter": 1}}, "early_terminate.type"),
        ({"command": []}, "command"),
        ({"kind": "Sweep"}, "kind"),
    ],
)
def test_what_is_wrong_with_a_search_is_found_at_its_place(
    changes: dict[str, Any], place: str
) -> None:
    assert places(**changes) == {place}


def test_hyperband_takes_its_bands_from_either_end() -> None:
    for bands in ({"min_iter": 3}, {"max_iter": 27, "s": 2}):
        stop = search(
            early_terminate={"type": "hyperband", **bands}, metric={"name": "loss"}
        ).early_terminate
        assert stop is not None
        assert (stop.eta, stop.strict) == (3.0, True)
