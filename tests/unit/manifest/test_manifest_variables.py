"""`kind: Variables`: where they hold, what they become, who gives them their values."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.manifest import Document, Manifest, ManifestErrors, load_manifests, read_documents
from fleetctl.manifest.files.documents import SET, VALUES

API = "apiVersion: fleetctl.dev/v1alpha1\n"


def variables(**declared: str) -> str:
    lines = "".join(f"  {name}: {text}\n" for name, text in declared.items())
    return f"{API}kind: Variables\nvariables:\n{lines}"


def job(name: str = "x", spec: str = "{template: {script: x}}") -> str:
    return f"{API}kind: BatchJob\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def flag(text: str) -> Document:
    return Document(f"--set {text}", text, "/", role=SET)


def values(text: str, path: str = "values.yaml") -> Document:
    return Document(path, text, "/", role=VALUES)


def one(*texts: str, given: tuple[Document, ...] = ()) -> Manifest:
    (found,) = load_manifests([Document("x.yaml", "---\n".join(texts), "/"), *given])
    return found


def problems(*texts: str, given: tuple[Document, ...] = ()) -> list[str]:
    with pytest.raises(ManifestErrors) as caught:
        load_manifests([Document("x.yaml", "---\n".join(texts), "/"), *given])
    return [str(it) for it in caught.value.problems]


def spec_of(found: Manifest) -> dict[str, object]:
    return found.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)


def test_a_value_that_is_one_reference_has_the_variables_type() -> None:
    declared = variables(
        n="{type: integer, default: 4}",
        deps="{type: list, default: [numpy]}",
        env="{type: map, default: {A: b}}",
    )
    spec = "{parallelism: '${{ n }}', template: {script: x, env: '${{ env }}',"
    found = one(declared, job(spec=spec + " image: {python: '3.12', pip: '${{deps}}'}}}"))
    assert spec_of(found) == {
        "parallelism": 4,
        "template": {
            "script": "x",
            "env": {"A": "b"},
            "image": {"python": "3.12", "pip": ["numpy"]},
        },
    }


def test_inside_a_longer_text_a_value_stands_as_text() -> None:
    declared = variables(
        n="{type: integer, default: 4}",
        lr="{type: number, default: 0.5}",
        fast="{type: boolean, default: true}",
    )
    script = "a ${{ n }} ${{n}} ${{ lr }} ${{ fast }} $${{ n }} ${n} ${{"
    with pytest.raises(ManifestErrors):
        one(declared, job(spec=f"{{template: {{script: '{script}'}}}}"))
    found = one(declared, job(spec=f"{{template: {{script: '{script[:-4]}'}}}}"))
    assert spec_of(found) == {"template": {"script": "a 4 4 0.5 true ${{ n }} ${n}"}}


def test_a_text_stays_a_text_though_it_looks_like_a_number() -> None:
    declared = variables(n="{type: string, default: '4'}")
    found = one(declared, job(spec="{template: {script: x, env: {A: '${{ n }}'}}}"))
    assert spec_of(found)["template"] == {"script": "x", "env": {"A": "4"}}
    assert problems(declared, job(spec="{parallelism: '${{ n }}', template: {script: x}}")) == [
        'x.yaml:9:21: spec.parallelism is `"4"`; it must be a whole number;'
        " `${{ n }}` has its value from x.yaml:4:30"
    ]


def test_keys_comments_and_what_a_document_is_are_not_touched() -> None:
    declared = variables(n="{type: string, default: BatchJob}")
    kind = job(spec="{template: {script: '${{ n }}'}}").replace("BatchJob", "${{ n }}")
    (told,) = problems(declared, kind)
    assert told.startswith("x.yaml:7:7: kind is `${{ n }}`; it must be one of")
    (told,) = problems(declared, job("'${{ n }}'") + "# ${{ nobody }}\n")
    assert told.startswith("x.yaml:8:18: metadata.name is `BatchJob`")


def test_the_order_of_who_gives_a_value() -> None:
    declared = variables(n="{type: integer, default: 1}")
    asks = job(spec="{parallelism: '${{ n }}', template: {script: x}}")
    two, three = values("n: 2\n"), values("n: 3\n", "later.yaml")
    assert spec_of(one(declared, asks))["parallelism"] == 1
    assert spec_of(one(declared, asks, given=(two,)))["parallelism"] == 2
    assert spec_of(one(declared, asks, given=(two, three)))["parallelism"] == 3
    assert spec_of(one(declared, asks, given=(flag("n=4"), two, three)))["parallelism"] == 4
    assert spec_of(one(declared, asks, given=(flag("n=4"), flag("n=5"))))["parallelism"] == 5


@pytest.mark.parametrize(
    ("sort", "text", "value"),
    [
        ("string", "4", "4"),
        ("string", "", ""),
        ("string", "a=b: c # d", "a=b: c # d"),
        ("integer", "4", 4),
        ("number", "3e-5", 3e-5),
        ("boolean", "true", True),
        ("list", "[a, 1, {b: c}]", ["a", 1, {"b": "c"}]),
        ("map", "{A: b}", {"A": "b"}),
    ],
)
def test_a_flag_is_read_by_the_type_that_is_declared(sort: str, text: str, value: object) -> None:
    declared = variables(n=f"{{type: {sort}}}")
    rows = "{tasks: {items: [{a: '${{ n }}'}]}, template: {script: x}}"
    found = one(declared, job(spec=rows), given=(flag(f"n={text}"),))
    assert spec_of(found)["tasks"] == {"items": [{"a": value}]}


@pytest.mark.parametrize(
    ("declared", "given", "told"),
    [
        ("{type: integer}", flag("n=four"), "--set: n is `four`; it must be a whole number"),
        ("{type: boolean}", flag("n=yes"), "--set: n is `yes`; it must be `true` or `false`"),
        ("{type: list}", flag("n=[a"), "--set: n is `[a`; it must be a list"),
        ("{type: integer}", values("a: 1\n"), "no variable is called so"),
        (
            "{type: integer}",
            values("\nn: 4.0\n"),
            "values.yaml:2:4: n is `4.0`; it must be a whole",
        ),
        ("{type: string}", values("n: 3\n"), "values.yaml:1:4: n is `3`; it must be a text"),
        ("{type: number, maximum: 3}", flag("n=4"), "--set: n is `4`; it must be at most 3"),
        ("{type: string, enum: [a, b]}", flag("n=c"), "n is `c`; it must be one of `a`, `b`"),
        ("{type: string, pattern: 'g[0-9]'}", flag("n=g10"), "it must match `g[0-9]`"),
        ("{type: string}", values("- n\n"), "it must be one mapping of variables to values"),
        ("{type: string}", values("n: 1\nn: 2\n"), "values.yaml:2:1: `n` is given twice"),
        ("{type: string}", flag("m=4"), "--set: m is given a value, and no variable is called so"),
    ],
)
def test_a_value_that_does_not_fit_is_told_where_it_was_given(
    declared: str, given: Document, told: str
) -> None:
    asks = job(spec="{template: {script: 'x ${{ n }}'}}")
    assert told in "\n".join(problems(variables(n=declared), asks, given=(given,)))


def write(place: Path, **files: str) -> list[Document]:
    for name, text in files.items():
        path = place / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_documents([str(place)], recursive=True)


N = "{type: integer, default: 1}"
ASKS = "{parallelism: '${{ n }}', template: {script: x}}"


def test_a_file_of_variables_holds_for_its_directory_and_all_below(tmp_path: Path) -> None:
    found = write(tmp_path, variables=variables(n=N), a=job("a", ASKS), deep__er__b=job("b", ASKS))
    assert [(it.name, spec_of(it)["parallelism"]) for it in load_manifests(found)] == [
        ("a", 1),
        ("b", 1),
    ]


def test_variables_beside_manifests_hold_for_their_file_alone(tmp_path: Path) -> None:
    one, two = variables(n=N), variables(n="{type: integer, default: 2}")
    found = write(tmp_path, a=one + "---\n" + job("a", ASKS), b=two + "---\n" + job("b", ASKS))
    assert [spec_of(it)["parallelism"] for it in load_manifests(found)] == [1, 2]
    assert [spec_of(it)["parallelism"] for it in load_manifests([*found, flag("n=7")])] == [7, 7]


def test_a_name_is_declared_once_for_a_file(tmp_path: Path) -> None:
    found = write(tmp_path, variables=variables(n=N), a=variables(n=N) + "---\n" + job("a", ASKS))
    with pytest.raises(ManifestErrors, match=r"a.yaml:4:3: n is declared for this file already"):
        load_manifests(found)


def test_without_variables_texts_of_other_tools_stay_as_they_are() -> None:
    script = "{template: {script: 'x ${{ github.sha }} $${{ x }} ${{'}}"
    found = one(job(spec=script))
    assert spec_of(found) == {"template": {"script": "x ${{ github.sha }} $${{ x }} ${{"}}
    assert found.warnings == ()


def test_a_reference_where_nothing_is_declared_is_warned_about() -> None:
    (told,) = one(job(spec="{template: {script: 'x ${{ n }}'}}")).warnings
    assert told.startswith("x.yaml:4:27: spec.template.script holds `${{ n }}`, and no variables")


def test_unused_is_told_only_when_all_files_of_the_directory_are_there(tmp_path: Path) -> None:
    declared = variables(n=N, m="{type: string, default: x}")
    found = write(tmp_path, variables=declared, a=job("a", ASKS), b=job("b"))
    with pytest.raises(ManifestErrors, match=r"variables.yaml:5:3: m is declared, and nothing"):
        load_manifests(found)
    assert len(load_manifests([it for it in found if not it.path.endswith("b.yaml")])) == 1


def test_files_that_a_variable_names_are_read(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n')
    declared = variables(rows="{type: string, default: rows.jsonl}")
    asks = job(spec="{tasks: {fromFile: '${{ rows }}'}, template: {script: x}}")
    (found,) = load_manifests(write(tmp_path, a=declared + "---\n" + asks))
    assert spec_of(found)["tasks"] == {"items": [{"a": 1}]}
    (tmp_path / "rows.jsonl").unlink()
    with pytest.raises(ManifestErrors, match=r"fromFile is `rows.jsonl`.*`\$\{\{ rows \}\}` has"):
        load_manifests(read_documents([str(tmp_path)]))
