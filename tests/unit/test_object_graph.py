"""The drawing of a graph as data: which objects it has, what it leaves out, and where each is."""

from __future__ import annotations

import pytest

from fleetctl.controllers.depends.references import NAMED_IN, references_in
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.views.object_graph import (
    COLUMN_ROWS_MAX,
    LinkRelation,
    ObjectLink,
    choose_part,
    find_hubs,
    hide_ends,
    lay_out,
    links_in,
)


def after(*pairs: str) -> list[ObjectLink]:
    """Links of `tail head`."""
    return [ObjectLink(*pair.split(), LinkRelation.AFTER) for pair in pairs]


def by_name(key: str) -> float:
    return float(key[1:])


def test_a_spec_is_linked_to_all_that_it_names() -> None:
    document = {
        "queue": "gpu",
        "dependsOn": [{"job": "first"}],
        "template": {
            "volumes": [{"name": "data", "mountPath": "/d"}, {"name": "data", "mountPath": "/e"}],
            "secrets": ["hub"],
            "endpoints": ["llm"],
        },
        "stages": [{"name": "a", "volumes": [{"name": "ckpt", "mountPath": "/c"}]}],
    }
    found = {
        (it.tail, it.relation.value, it.text) for it in links_in(document, "batchjob/x", "team")
    }
    assert found == {
        ("batchjob/first -n team", "after", "Succeeded"),
        ("queue/gpu", "uses", "queue"),  # which belongs to no namespace
        ("volume/data -n team", "uses", "template.volumes.name"),
        ("secret/hub -n team", "uses", "template.secrets"),
        ("endpoint/llm -n team", "uses", "template.endpoints"),
        ("volume/ckpt -n team", "uses", "stages.volumes.name"),
    }


@pytest.mark.parametrize("document", [{"queue": 3}, {"template": []}, {"stages": [None, "x"]}, {}])
def test_a_part_of_another_form_names_nothing(document: dict[str, object]) -> None:
    assert references_in(document) == []


def test_each_row_of_names_is_of_a_field_that_some_kind_has() -> None:
    """A field that gets another name must not leave the graph without its links."""

    def has(schema: dict[str, object], whole: dict[str, object], parts: list[str]) -> bool:
        if "$ref" in schema:
            name = str(schema["$ref"]).rpartition("/")[2]
            return has(whole["$defs"][name], whole, parts)  # type: ignore[index]
        if any(has(it, whole, parts) for it in schema.get("anyOf", ())):  # type: ignore[attr-defined]
            return True
        if not parts:
            return True
        inner = (
            schema.get("items") if parts[0] == "*" else schema.get("properties", {}).get(parts[0])  # type: ignore[attr-defined]
        )
        return inner is not None and has(inner, whole, parts[1:])

    schemas = [it.spec.model_json_schema(by_alias=True) for it in KINDS.values()]
    for path, kind in NAMED_IN:
        assert kind in KINDS
        assert any(has(it, it, path.split(".")) for it in schemas), path


def test_an_end_that_may_not_be_seen_has_neither_name_nor_number() -> None:
    links = [
        *after("batchjob/a batchjob/mine", "batchjob/b batchjob/mine", "batchjob/mine batchjob/c"),
        *after("batchjob/a batchjob/b"),
    ]
    found = list(hide_ends(links, lambda key: key == "batchjob/mine", "hidden"))
    assert len(found) == 2
    assert all("batchjob/mine" in (it.tail, it.head) for it in found)
    assert not any(name in str(found) for name in ("batchjob/a", "batchjob/b", "batchjob/c"))


def test_of_an_object_all_before_and_all_after_are_drawn_and_not_its_siblings() -> None:
    links = after("n1 n2", "n2 n3", "n2 n4", "n5 n3")
    part = choose_part(links, ["n3"], by_name, 10)
    assert set(part.keys) == {"n1", "n2", "n3", "n5"}
    assert part.more == {} and part.total == 4


def test_a_large_graph_is_cut_around_neighbours_and_counts_what_is_left() -> None:
    star = after(*(f"n0 n{number}" for number in range(1, 1000)))
    part = choose_part(star, None, by_name, 200)
    assert (len(part.keys), part.total) == (200, 1000)
    assert part.more == {"n0": 800}
    assert len(part.links) == 199
    lone = choose_part(star, ["n7"], by_name, 1)
    assert lone.keys == ("n7",) and lone.more == {"n7": 1}


def test_an_object_is_right_of_all_before_it_and_no_two_are_at_one_place() -> None:
    links = after("a b", "b c", "a c", "d e", *(f"q j{number}" for number in range(50)))
    links += [ObjectLink("vol", "c", LinkRelation.USES), ObjectLink("src", "d", LinkRelation.KEEPS)]
    keys = sorted({key for it in links for key in (it.tail, it.head)})
    found = lay_out(keys, links)
    assert found.keys() == set(keys)
    assert len(set(found.values())) == len(keys)
    assert all(found[it.tail].column < found[it.head].column for it in links)
    rows = [it.row for it in found.values()]
    assert max(rows) < COLUMN_ROWS_MAX + 4  # a layer of 50 is three columns, not one


def test_what_very_many_use_moves_no_other_object() -> None:
    chain = after("a b", "b c")
    uses = [ObjectLink("queue", f"j{number:02}", LinkRelation.USES) for number in range(40)]
    uses += [ObjectLink("queue", key, LinkRelation.USES) for key in "abc"]
    keys = sorted({key for it in (*chain, *uses) for key in (it.tail, it.head)})
    found = lay_out(keys, [*chain, *uses])
    assert find_hubs([*chain, *uses]) == {"queue"}
    assert [found[key] for key in ("queue", "a", "b", "c")] == [(0, 0), (0, 1), (1, 1), (2, 1)]
    assert found["j00"] == (0, 2) and max(it.row for it in found.values()) == 11
    assert list(found)[:4] == ["queue", "a", "b", "c"]
    assert len(set(found.values())) == len(keys)


def test_a_circle_has_places_too() -> None:
    found = lay_out(["a", "b", "c"], after("a b", "b a", "b c"))
    assert len(set(found.values())) == 3


def test_the_same_objects_are_at_the_same_places() -> None:
    links = after(*(f"a{number % 7} b{number}" for number in range(60)))
    keys = sorted({key for it in links for key in (it.tail, it.head)})
    assert lay_out(keys, links) == lay_out(keys[::-1], links[::-1])
