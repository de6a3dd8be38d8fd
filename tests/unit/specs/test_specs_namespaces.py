"""How an object is named among others, by people and at providers."""

from __future__ import annotations

import pytest

from fleetctl.specs.values.namespaces import asset_name, object_key, own_name, split_key


@pytest.mark.parametrize(
    ("namespace", "key"), [("default", "batchjob/x"), ("team", "batchjob/x -n team")]
)
def test_a_key_is_what_one_writes_behind_a_verb_and_is_read_back(namespace: str, key: str) -> None:
    assert object_key("BatchJob", "x", namespace) == key
    assert split_key(key) == ("batchjob", "x", namespace)


def test_names_at_a_provider_never_meet_and_those_of_default_are_as_they_were() -> None:
    places = [("a", "b-c"), ("a-b", "c"), ("default", "a-b-c"), ("default", "c"), ("c", "c")]
    names = [asset_name(name, namespace) for namespace, name in places]
    assert len(set(names)) == len(places)
    assert names[2:4] == ["a-b-c", "c"]
    assert [own_name(it) for it in names] == [name for _, name in places]
