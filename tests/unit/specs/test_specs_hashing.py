from __future__ import annotations

import pytest

from fleetctl.specs.blocks.common import PlacementSpec
from fleetctl.specs.blocks.template import Image, Template
from fleetctl.specs.content import template_hash
from fleetctl.specs.values.hashing import canonical_json, params_hash

HERE = PlacementSpec()


def test_canonical_json_is_one_text_for_equal_values() -> None:
    assert canonical_json({"b": 1, "a": [None, True]}) == '{"a":[null,true],"b":1}'
    assert canonical_json({"é": "\ud800"}) == '{"\\u00e9":"\\ud800"}'


def test_canonical_json_refuses_what_json_has_not() -> None:
    for value in (float("nan"), float("inf"), {"a": -float("inf")}):
        with pytest.raises(ValueError, match="not JSON compliant"):
            canonical_json(value)


def test_the_hash_of_a_template_covers_the_work_and_the_sandbox() -> None:
    base = Template(script="a")
    others = [
        Template(script="b"),
        Template(python="a"),
        Template(script="a", env={"A": "1"}),
        Template(script="a", image=Image(pip=("numpy",))),
        Template(script="a", secrets=("s",)),
        Template(script="a", workdir="/x"),
    ]
    hashes = {template_hash(it, HERE) for it in (base, *others)}
    assert len(hashes) == len(others) + 1
    assert all(len(it) == 16 and int(it, 16) >= 0 for it in hashes)


def test_the_hash_of_a_template_leaves_out_how_long_it_may_take() -> None:
    slow = Template(script="a", timeout_seconds=5, termination_grace_period_seconds=1)
    assert template_hash(slow, HERE) == template_hash(Template(script="a"), HERE)


def test_the_hash_of_a_template_tells_providers_apart() -> None:
    template = Template(script="a")
    assert template_hash(template, PlacementSpec(provider="local")) == template_hash(template, HERE)
    assert template_hash(template, PlacementSpec(provider="modal")) != template_hash(template, HERE)


def test_hashes_stay_what_they_were_when_they_were_stored() -> None:
    assert params_hash({"b": 1, "a": "x"}) == params_hash({"a": "x", "b": 1}) == "cdab067e9f3beb32"
    assert template_hash(Template(script="echo hi"), HERE) == "4e63021bda63afb1"
