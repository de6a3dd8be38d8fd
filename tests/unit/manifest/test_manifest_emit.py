from __future__ import annotations

from fleetctl.manifest.yaml.emit import to_yaml


def test_texts_that_read_as_something_else_are_quoted() -> None:
    for text in ("3e-5", "0o17", "1", "true", "null", "~", "", ".inf", "9" * 30, "no", "1:30", "y"):
        assert to_yaml([text]) == f"- '{text}'\n"
    assert to_yaml(["3e-5x", "2h", "a-b"]) == "- 3e-5x\n- 2h\n- a-b\n"


def test_scripts_are_written_as_blocks() -> None:
    assert to_yaml({"script": "set -e\n  make\n"}) == "script: |\n  set -e\n    make\n"


def test_what_occurs_twice_is_written_twice() -> None:
    shared = {"a": [1]}
    assert to_yaml({"x": shared, "z": shared}) == "x:\n  a:\n  - 1\nz:\n  a:\n  - 1\n"


def test_keys_keep_their_order() -> None:
    assert to_yaml({"b": 1, "a": 2}) == "b: 1\na: 2\n"
