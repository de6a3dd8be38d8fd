"""The driver as it is shipped: one text, old Pythons, no two parts with the same name."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from fleetctl.guest.ship import assemble

SETUP = {
    "op": "setup",
    "id": 1,
    "manner": "modal",
    "mount": "/data",
    "root": "",
    "workspace": "",
    "env": {},
    "idle_s": None,
}


def order(code: str, number: int = 2) -> dict[str, Any]:
    about = {"variables": {}, "tools": [], "fields": [], "profile": ""}
    return {"op": "execute", "id": number, "code": code, **about}


def talk(tmp_path: Path, *lines: Any) -> list[Any]:
    """What the driver answers to these messages (or texts) before its line is closed."""
    driver = tmp_path / "driver.py"
    driver.write_text(assemble.driver_source())
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    with subprocess.Popen(
        [sys.executable, "-u", str(driver)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n".join(texts) + "\n")
        process.stdin.flush()
        wanted = 1 + sum(isinstance(line, dict) for line in lines)
        answers = [json.loads(process.stdout.readline()) for _ in range(wanted)]
        process.stdin.close()
        assert process.wait(300) == 0
    return answers


def test_it_is_one_text_for_python_3_9_that_needs_nothing_of_ours() -> None:
    text = assemble.driver_source()
    ast.parse(text, feature_version=(3, 9))
    assert text == assemble.driver_source.__wrapped__()
    assert "from fleetctl" not in text


def test_no_two_parts_give_the_same_name_to_different_things() -> None:
    names: Counter[str] = Counter()
    for node in ast.parse(assemble.driver_source()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names[node.name] += 1
        elif isinstance(node, ast.Assign):
            names.update(one.id for one in ast.walk(node) if _is_set(one))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] += 1
    assert [name for name, count in names.items() if count > 1] == []


def test_lines_that_are_no_messages_are_passed_over(tmp_path: Path) -> None:
    hello, *answers = talk(
        tmp_path, "noise", "[1]", '{"no": "op"}', SETUP, "{", order("SUBMIT(a=1)")
    )
    assert hello["hello"] == sys.version.split()[0]
    assert answers[0] == {"id": 1, "done": None}
    assert answers[1]["done"]["final"] == '{"a": 1}'


def test_what_it_cannot_do_is_a_problem_and_it_lives_on(tmp_path: Path) -> None:
    answers = talk(
        tmp_path,
        order("1"),
        SETUP,
        {"op": "dance", "id": 5},
        {"op": "exists", "id": 6, "path": "a"},
        order("SUBMIT(a=1)", 7),
    )[1:]
    assert [answer.get("problem") for answer in answers] == [
        "the driver knows no `execute` now",
        None,
        "the driver knows no `dance` now",
        "`a` is not a path inside of the volume",
        None,
    ]


def test_code_finds_no_trace_of_the_driver_on_its_path(tmp_path: Path) -> None:
    code = "import sys; SUBMIT(first=sys.path[0], argv=sys.argv, names='Driver' in globals())"
    answer = talk(tmp_path, SETUP, order(code))[-1]
    assert json.loads(answer["done"]["final"]) == {"first": "", "argv": [""], "names": False}


def _is_set(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
