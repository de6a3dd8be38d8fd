"""Variables and overlays over any data: what comes out is what a simple model says, and every piece
of it is known to stand where it was written.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.common.finding import Path
from fleetctl.manifest import Document, ManifestErrors
from fleetctl.manifest.files.documents import VALUES
from fleetctl.manifest.positions import ManifestOrigin
from fleetctl.manifest.rendering.merging import MERGE_KEYS, MergeOrigins, StrategicMerge
from fleetctl.manifest.rendering.references import VariableSubstitution
from fleetctl.manifest.rendering.render import rendered_values
from fleetctl.manifest.yaml.emit import to_yaml

API = "fleetctl.dev/v1alpha1"
names = st.sampled_from(["a", "b-1", "long_name", "Z"])
texts = st.text(max_size=8) | st.sampled_from(["${{", "$${{ a }}", "${{ x.y }}", "}}", "$", "no"])
scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | texts
keys = st.sampled_from(["env", "volumes", "name", "x", "y"])
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=4)
        | st.lists(st.dictionaries(st.sampled_from(["x", "y"]), inner, max_size=2), max_size=3).map(
            lambda found: [{"name": f"n{at}", **it} for at, it in enumerate(found)]
        )
    ),
    max_leaves=15,
)
mappings = st.dictionaries(keys, trees, max_size=4)

TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "list", dict: "map"}


class Fixed:
    """A variable with its value."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.size = 1

    def use(self) -> bool:
        return True


def escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("${{", "$${{")
    if isinstance(value, list):
        return [escaped(it) for it in value]
    if isinstance(value, dict):
        return {key: escaped(it) for key, it in value.items()}
    return value


@given(mappings)
def test_what_is_escaped_comes_out_as_it_was(tree: dict[str, Any]) -> None:
    filling, data = VariableSubstitution({}), escaped(tree)
    filling.fill(data)
    assert (data, filling.found, filling.used) == (tree, [], {})


@given(
    mappings, st.dictionaries(names, trees.filter(lambda it: it is not None), min_size=1), st.data()
)
def test_a_reference_becomes_its_value_and_nothing_else_changes(
    tree: dict[str, Any], values: dict[str, Any], draw: st.DataObject
) -> None:
    asked = escaped(tree)
    expected = deepcopy(tree)
    for name, value in values.items():
        key = draw.draw(st.sampled_from(["p", "q", "r"]))
        asked.setdefault(key, []).append(f"${{{{ {name} }}}}")
        expected.setdefault(key, []).append(value)
    filling = VariableSubstitution({name: Fixed(value) for name, value in values.items()})
    filling.fill(asked)
    assert asked == expected
    assert filling.found == []
    assert sorted({it for some in filling.used.values() for it in some}) == sorted(values)


@given(st.dictionaries(names, trees.filter(lambda it: it is not None), min_size=1))
def test_values_of_every_type_come_through_a_file_of_values(values: dict[str, Any]) -> None:
    declared = {name: {"type": TYPES[type(value)]} for name, value in values.items()}
    spec = {name: f"${{{{ {name} }}}}" for name in values}
    head = {"apiVersion": API, "kind": "Variables", "variables": declared}
    asks = {"apiVersion": API, "kind": "BatchJob", "metadata": {"name": "x"}, "spec": spec}
    text = to_yaml(head) + "---\n" + to_yaml(asks)
    documents = [Document("x.yaml", text, "/"), Document("v", to_yaml(values), "/", role=VALUES)]
    assert [it["spec"] for it in rendered_values(documents)] == [values]


def merged(old: Any, new: Any, key: str = "") -> Any:
    """The rules of a strategic merge, as simply as can be said, without directives."""
    listed = isinstance(old, list) and isinstance(new, dict) and key == "env"
    if listed and all(isinstance(it, dict) and set(it) == {"name", "value"} for it in old):
        old = {it["name"]: it["value"] for it in old}
    if isinstance(old, dict) and isinstance(new, dict):
        out = dict(old)
        for name, value in new.items():
            if value is None:
                out.pop(name, None)
            else:
                out[name] = merged(old[name], value, name) if name in old else value
        return out
    if key in MERGE_KEYS and isinstance(old, list) and isinstance(new, list):
        words = [[it.get("name") if isinstance(it, dict) else None for it in x] for x in (old, new)]
        if all(isinstance(it, str) for some in words for it in some):
            by_name = {it["name"]: it for it in old}
            for it in new:
                by_name[it["name"]] = merged(by_name.get(it["name"]), it)
            return list(by_name.values())
    return new


def leaves(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    inner: Any = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    below = [it for key, one in inner for it in leaves(one, (*path, key))]
    # What an empty collection was before pieces of it went is not told by its value.
    return below or ([] if isinstance(value, dict | list) else [(path, value)])


def at(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data


@settings(max_examples=100)
@given(mappings, st.lists(mappings, max_size=3))
def test_a_merge_follows_its_rules_and_knows_where_each_piece_was_written(
    base: dict[str, Any], patches: list[dict[str, Any]]
) -> None:
    whole = ManifestOrigin(Document("base", "", "/"), 0)
    texts = {"base": deepcopy(base)}
    tree, parts = deepcopy(base), MergeOrigins(whole)
    expected: Any = deepcopy(base)
    for number, patch in enumerate(patches):
        name = f"patch-{number}"
        texts[name] = patch
        told = ManifestOrigin(Document(name, "", "/"), 0)
        StrategicMerge(patch=told, parts=parts, found=[]).mapping(tree, deepcopy(patch), (), ())
        expected = merged(expected, deepcopy(patch))
    assert tree == expected
    for path, value in leaves(tree):
        written, there = parts.origin(path)
        try:
            assert at(texts[written.document.path], there) == value
        except (KeyError, TypeError):
            # The list form of `env` has no such path; its list stands where is said.
            assert "env" in there
            assert isinstance(
                at(texts[written.document.path], there[: there.index("env") + 1]), list
            )


@given(st.text(alphabet="${} ab.\n-", max_size=30))
def test_any_text_is_answered(text: str) -> None:
    head = {
        "apiVersion": API,
        "kind": "Variables",
        "variables": {"a": {"type": "string", "default": "A"}},
    }
    asks = {
        "apiVersion": API,
        "kind": "BatchJob",
        "metadata": {"name": "x"},
        "spec": {"x": text, "y": "${{a}}"},
    }
    try:
        rendered_values([Document("x.yaml", to_yaml(head) + "---\n" + to_yaml(asks), "/")])
    except ManifestErrors as errors:
        assert str(errors).startswith("x.yaml:")
