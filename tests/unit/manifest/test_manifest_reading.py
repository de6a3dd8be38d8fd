from __future__ import annotations

from typing import Any

from fleetctl.manifest.yaml.reader import DEPTH_MAX, DOCUMENTS_MAX, read_yaml


def values(text: str) -> list[Any]:
    reading = read_yaml("x", text)
    assert reading.problems == []
    return [root.value for root in reading.roots]


def refusals(text: str) -> list[str]:
    return [str(it).removeprefix("x:") for it in read_yaml("x", text).problems]


def test_documents_are_read_in_order_and_empty_ones_left_out() -> None:
    text = "---\n# nothing\n---\na: 1\n---\n...\n---\nb: [2, {c: ~}]\n"
    assert values(text) == [{"a": 1}, {"b": [2, {"c": None}]}]


def test_quotes_and_blocks_make_texts() -> None:
    text = "a: '1'\nb: \"true\"\nc: |\n  3\nd: >-\n  4\n  5\ne: !\n"
    assert values(text.replace("e: !\n", "")) == [{"a": "1", "b": "true", "c": "3\n", "d": "4 5"}]


def test_windows_line_ends_are_line_ends() -> None:
    assert values("a: |\r\n  x\r\n  y\r\nb: 1\r\n") == [{"a": "x\ny\n", "b": 1}]


def test_json_is_read_with_its_escapes() -> None:
    text = '{"a": "\\ud83d\\ude00\\/\\u00e9", "b": [1e5, -0, null],\n\t"c": {}}'
    assert values(text) == [{"a": "😀/é", "b": [1e5, 0, None], "c": {}}]


def test_text_that_only_looks_like_an_escape_stays_as_it_is() -> None:
    assert values("{a: '\\ud83d\\ude00'}") == [{"a": "\\ud83d\\ude00"}]
    assert values("a: |\n  print('\\ud83d\\ude00')\n") == [{"a": "print('\\ud83d\\ude00')\n"}]


def test_duplicate_keys_are_all_found_and_the_first_value_is_kept() -> None:
    reading = read_yaml("x", "a: 1\nb: {c: 1, c: 2}\na: [3, {d: 1, d: 2}]\n")
    assert [(it.line, it.column) for it in reading.problems] == [(2, 11), (3, 1), (3, 15)]
    assert reading.roots[0].value == {"a": 1, "b": {"c": 1}}


def test_the_same_key_in_two_mappings_is_no_duplicate() -> None:
    assert values("- {a: 1}\n- {a: 1}\n") == [[{"a": 1}, {"a": 1}]]


def test_one_reading_finds_every_structural_mistake() -> None:
    found = refusals("a: &x 1\nb: *x\nc: !!str 1\n<<: {}\n1: 2\n? [k]\n: v\n")
    assert [it.split(" ", 1)[0] for it in found] == ["1:4:", "2:4:", "3:4:", "4:1:", "5:1:", "6:3:"]


def test_a_syntax_error_leaves_the_documents_before_it() -> None:
    reading = read_yaml("x", "a: 1\n---\nb: [1\n")
    assert [root.value for root in reading.roots] == [{"a": 1}]
    assert len(reading.problems) == 1


def test_nesting_has_a_limit_in_both_styles() -> None:
    deepest = DEPTH_MAX
    assert values("[" * deepest + "]" * deepest) == [_lists(deepest)]
    for text in (
        "[" * (deepest + 1) + "]" * (deepest + 1),
        "- " * (deepest + 1) + "x",
        "\n".join(" " * depth + "a:" for depth in range(deepest + 1)) + " {}",
        "{a: " * (deepest + 1) + "1" + "}" * (deepest + 1),
        "? " * (deepest + 1) + "x",
    ):
        (problem,) = refusals(text)
        assert "nested more than 64 levels deep" in problem


def test_the_number_of_documents_has_a_limit() -> None:
    assert len(values("--- a\n" * DOCUMENTS_MAX)) == DOCUMENTS_MAX
    (problem,) = refusals("--- a\n" * (DOCUMENTS_MAX + 1))
    assert "at most 10,000 documents" in problem


def test_positions_are_kept_for_the_paths_that_are_asked_for() -> None:
    wanted = frozenset({("a", "b", 1), ("a",), ("a", "b")})
    (root,) = read_yaml("x", "a:\n  b: [1, 3e-5]\n  c: 2\n", wanted=wanted).roots
    assert root.values == {("a", "b", 1): (2, 10), ("a", "b"): (2, 6), ("a",): (2, 3)}
    assert root.keys == {("a",): (1, 1), ("a", "b"): (2, 3)}
    assert root.collections == {("a",), ("a", "b")}
    assert root.written == {("a", "b", 1): "3e-5"}


def test_columns_count_characters_not_bytes() -> None:
    (root,) = read_yaml("x", "é: 😀\né2: [😀, b]\n", wanted=frozenset({("é2", 1)})).roots
    assert root.values == {("é2", 1): (2, 9)}


def test_forbidden_characters_are_found_by_line_and_column() -> None:
    assert refusals("a: é\nb: x\x07y\n") == [
        "2:5: U+0007 is a control character; write it as an escape in double quotes"
    ]
    assert refusals("a: \x00")[0].startswith("1:4: U+0000")
    assert refusals("a: \ud800")[0].startswith("1:1: U+D800")


def _lists(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value
