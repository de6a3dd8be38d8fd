"""The loader on anything at all: it answers with manifests or with ManifestErrors."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from fleetctl.manifest import Document, Manifest, ManifestErrors, load_manifests
from fleetctl.manifest.plain_scalars import resolve_scalar
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.manifest.yaml.reader import read_yaml
from fleetctl.specs.kinds.registry import API_VERSION, KINDS, dump_spec

HEAD = f"apiVersion: {API_VERSION}\nkind: BatchJob\nmetadata: {{name: x}}\nspec:\n"

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["3e-5", "no", "1:30", "0o17", "~", ".inf", "<<", "a: b", "# c", "x\n y\n"])
)
data = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=25,
)


def loaded(text: str) -> list[Manifest] | ManifestErrors:
    try:
        return load_manifests([Document("x.yaml", text, "/")])
    except ManifestErrors as errors:
        assert str(errors)
        assert str(errors).replace("\n", "").isprintable()
        return errors


@given(st.text())
@example("a: &a [*a]")
@example("%TAG ! x\n---\n!a b")
@example("\ud800")
@example("- " * 70)
@example("? ? ? x")
@example("{" * 100)
@example('"\\ud83d\\ude00"')
@example("---\n...\n---\n--- |\n")
def test_any_text_is_answered(text: str) -> None:
    loaded(text)


@given(st.dictionaries(st.text(st.characters(codec="ascii"), max_size=8), data, max_size=4))
@example({"<<": {"on": "1:30", "": [1e300, -0.0, 10**18]}})
@example({"k" * 1100: 1})
@example({"a": {"b": [[[[{}]]]]}, "~": "no # c"})
@example({key: [[[]]] for key in "abcdefghijklmnopqrstuvwxyz"})
def test_a_line_of_json_is_read_as_the_same_yaml(value: dict[str, Any]) -> None:
    line = json.dumps(value, ensure_ascii=False)
    read_alike(line)


JSON_SIGNS = ["{", "}", '{"a": ', '"b": ', ", ", "[", "]", "1", "-0", "1e5", "1e999", "0.5", "01"]
JSON_SIGNS += ["9" * 30, "null", "NaN", "-Infinity", "true", '"\\/\\n"', '"\\ud83d"', '"#"', " "]


@given(st.lists(st.sampled_from(JSON_SIGNS), max_size=12).map("".join))
@example('{"a": 1, "a": 2}')
@example('{"a": ' * 65 + "1" + "}" * 65)
@example('{"a": 1} {"b": 2}')
@example('{"a": NaN}')
@example('{"a": 1e999}')
def test_any_line_that_begins_as_json_is_read_as_the_same_yaml(text: str) -> None:
    read_alike("{" + text.removeprefix("{"))


def read_alike(line: str) -> None:
    """A line break at the end is nothing to YAML, and leaves the way of a line of JSON."""
    one = read_yaml("x", line)
    other = read_yaml("x", f"{line}\n")
    assert one.roots == other.roots
    assert bool(one.problems) == bool(other.problems)


@given(st.lists(st.sampled_from("{}[]:,-?&*!|>'\"%@#\n \tab01~<"), max_size=60).map("".join))
def test_any_mixture_of_yaml_signs_is_answered(text: str) -> None:
    loaded(text)


@given(st.dictionaries(st.sampled_from([*KINDS["BatchJob"].spec.model_fields, "x"]), data), data)
def test_any_fields_are_answered(spec: dict[str, Any], template: Any) -> None:
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "BatchJob",
        "metadata": {"name": "x"},
        "spec": {"template": template, **spec},
    }
    loaded(to_yaml(manifest))


@given(st.sampled_from(list(KINDS)), data, data)
def test_any_data_in_any_kind_is_answered(kind: str, metadata: Any, spec: Any) -> None:
    loaded(to_yaml({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}))


@given(data)
def test_what_is_written_as_yaml_reads_back_the_same(value: Any) -> None:
    reading = read_yaml("x", to_yaml({"value": value}))
    assert reading.problems == []
    assert json.dumps(reading.roots[0].value) == json.dumps({"value": value})


@given(data)
def test_json_is_read_as_json(value: Any) -> None:
    for text in (json.dumps({"v": value}), json.dumps({"v": value}, ensure_ascii=False, indent=1)):
        reading = read_yaml("x", text)
        assert reading.problems == []
        assert json.dumps(reading.roots[0].value) == json.dumps({"v": value})


@given(st.text("0123456789+-._eExXoOabcdefinfaIN:", max_size=12))
def test_a_plain_scalar_is_what_yaml_1_2_says(text: str) -> None:
    try:
        value = resolve_scalar(text)
    except ValueError:
        return
    if isinstance(value, bool) or value is None:
        assert text.lower() in ("true", "false", "", "~", "null")
    elif isinstance(value, int):
        assert value == (int(text, 0) if text[:2] in ("0x", "0o") else int(text))
    elif isinstance(value, float):
        assert value == float(text)
        assert set("._eE") & set(text)
    else:
        assert value == text


names = st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9]", fullmatch=True)
env_names = st.from_regex(r"X_[A-Z0-9_]{0,10}", fullmatch=True)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
templates = st.fixed_dictionaries(
    {},
    optional={
        "env": st.dictionaries(env_names, texts, max_size=3),
        "secrets": st.lists(names, max_size=2),
        "resources": st.fixed_dictionaries(
            {},
            optional={
                "cpu": st.sampled_from([1, 0.5, "500m"]),
                "memory": st.sampled_from([1024, "4Gi", "1.5G"]),
                "gpu": st.sampled_from(["A100:4", "any:1", "L4"]),
            },
        ),
        "image": st.sampled_from(["ghcr.io/x", {"python": "3.12", "pip": ["numpy"]}]),
        "timeoutSeconds": st.sampled_from([1, 0.5, "5m", "1h30m"]),
        "volumes": st.just([{"name": "v", "mountPath": "/data", "links": ["/home/x"]}]),
    },
)
work = (
    texts.map(lambda it: {"python": f"text = {it!r}"})
    | texts.filter(bool).map(lambda it: {"script": it})
    | st.lists(texts, min_size=1, max_size=3).map(lambda it: {"command": ["work", *it]})
)
jobs = st.fixed_dictionaries(
    {"template": st.builds(lambda a, b: {**a, **b}, templates, work)},
    optional={
        "parallelism": st.integers(0, 10**6),
        "suspend": st.booleans(),
        "activeDeadlineSeconds": st.sampled_from([30, "2h", "7d"]),
        "backoffLimitPerIndex": st.integers(0, 100),
        "seed": st.integers(0, 2**53 - 1),
        "sandbox": st.sampled_from([{"reuse": 3}, {"reuse": "all"}]),
        "placement": st.sampled_from([{"provider": "modal"}, {"anyOf": [{"provider": "a"}]}]),
        "tasks": st.fixed_dictionaries(
            {
                "items": st.lists(
                    st.dictionaries(env_names, data, max_size=3), min_size=1, max_size=3
                )
            }
        )
        | st.fixed_dictionaries(
            {
                "matrix": st.dictionaries(
                    env_names, st.lists(data, min_size=1), min_size=1, max_size=3
                )
            }
        ),
    },
)


@given(jobs)
def test_a_valid_manifest_stored_shown_and_applied_again_is_the_same(spec: dict[str, Any]) -> None:
    head = {"apiVersion": API_VERSION, "kind": "BatchJob", "metadata": {"name": "x"}}
    first = loaded(to_yaml({**head, "spec": spec}))
    assert isinstance(first, list), str(first)
    stored = dump_spec(first[0].spec)
    again = loaded(to_yaml({**head, "spec": json.loads(stored)}))
    assert isinstance(again, list), str(again)
    assert again[0].spec == first[0].spec
    assert dump_spec(again[0].spec) == stored
