"""Results: a submitted field is found by its name, whatever the name is."""

from __future__ import annotations

import copy
import pickle

import pytest

from fleetctl import FinalOutput, as_dict

AWKWARD = ("items", "keys", "count", "output", "index", "get", "_submitted", "as_dict", "class")


@pytest.mark.parametrize("name", AWKWARD)
def test_a_field_goes_before_everything_that_the_object_has(name: str) -> None:
    result = FinalOutput({name: "mine", "other": 1})
    assert getattr(result, name) == "mine"
    assert result[name] == "mine"


def test_output_is_all_fields_unless_a_field_has_that_name() -> None:
    assert FinalOutput({"a": 1, "b": [2]}).output == {"a": 1, "b": [2]}
    assert FinalOutput({"output": 5}).output == 5


def test_as_dict_gives_all_fields_and_changing_it_changes_nothing() -> None:
    result = FinalOutput({"output": 1, "items": 2})
    fields = as_dict(result)
    fields["more"] = 3
    assert as_dict(result) == {"output": 1, "items": 2}


def test_a_value_that_has_no_fields_is_the_output() -> None:
    result = FinalOutput("done")
    assert result.output == "done"
    assert as_dict(result) == {}


def test_a_missing_field_is_told_with_those_that_there_are() -> None:
    with pytest.raises(AttributeError, match="no field `loss`; it has `lr`, `acc`"):
        FinalOutput({"lr": 1, "acc": 2}).loss  # noqa: B018
    with pytest.raises(KeyError):
        FinalOutput({"lr": 1})["loss"]
    assert not hasattr(FinalOutput({}), "items")


def test_fields_with_underscores_around_are_found_by_key_and_leave_the_object_whole() -> None:
    result = FinalOutput({"__class__": "x", "__dict__": 1})
    assert result["__class__"] == "x"
    assert isinstance(result, FinalOutput)


def test_a_result_cannot_be_changed_or_iterated() -> None:
    result = FinalOutput({"a": 1})
    with pytest.raises(AttributeError):
        result.a = 2
    with pytest.raises(AttributeError):
        del result.a
    with pytest.raises(TypeError):
        iter(result)
    assert "a" in result
    assert "b" not in result
    assert dir(result) == ["a", "output"]


def test_results_compare_by_their_values_and_survive_pickling_and_copying() -> None:
    result = FinalOutput({"items": [1], "output": {"k": None}})
    assert result == FinalOutput({"items": [1], "output": {"k": None}})
    assert result != FinalOutput({"items": [2], "output": {"k": None}})
    assert result != {"items": [1], "output": {"k": None}}
    assert pickle.loads(pickle.dumps(result)) == result
    assert copy.deepcopy(result) == result
    assert repr(result) == "FinalOutput({'items': [1], 'output': {'k': None}})"
