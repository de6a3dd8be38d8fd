"""Values of real torch, pandas and pydantic in SUBMIT, as the table of the docs has them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

PYTHON = Path(os.environ["FLEETCTL_TEST_VALUES"])
CODE = """
import datetime, decimal, enum
import numpy, pandas, pydantic, torch
class Colour(enum.Enum):
    RED = "red"
class Run(pydantic.BaseModel):
    at: datetime.date
    best: decimal.Decimal
    colour: Colour
"""
# (an expression, what is kept of it), by library.
KEPT = [
    ("torch.tensor(0.5)", 0.5),
    ("torch.tensor(3)", 3),
    ("torch.tensor([[1, 2], [3, 4]])", [[1, 2], [3, 4]]),
    ("torch.tensor([1.0], requires_grad=True)", [1.0]),
    ("torch.tensor(0.25, dtype=torch.float16)", 0.25),
    ("torch.tensor(float('nan'))", None),
    ("{torch.tensor(1).item(): torch.tensor(True)}", {"1": True}),
    ("torch.Size([2, 3])", [2, 3]),
    ("numpy.float32(0.5)", 0.5),
    ("numpy.datetime64('2024-01-01')", "2024-01-01"),
    ("pandas.Timestamp('2024-01-01')", "2024-01-01T00:00:00"),
    ("pandas.Timedelta(minutes=1)", 60.0),
    ("pandas.NaT", None),
    ("pandas.NA", None),
    ("pandas.Series([1, 2])", [1, 2]),
    ("pandas.Series([1.0, None])", [1.0, None]),
    ("pandas.DataFrame({'a': [1, 2], 'b': ['x', 'y']})", [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
    ("pandas.DataFrame({'at': [pandas.Timestamp('2024-01-01')]})", [{"at": "2024-01-01T00:00:00"}]),
    ("pandas.Index(['x'])", ["x"]),
    ("pandas.Series([3, 1]).max()", 3),
    (
        "Run(at='2024-01-01', best='0.93', colour='red')",
        {"at": "2024-01-01", "best": 0.93, "colour": "red"},
    ),
    (
        "[Run(at='2024-01-01', best='1', colour='red')]",
        [{"at": "2024-01-01", "best": 1, "colour": "red"}],
    ),
]
DRIVE = """
import json, sys
from fleetctl.guest.task.task import Sandbox
events = []
for value in json.load(sys.stdin)["values"]:
    code = PREFIX + "\\nSUBMIT(acc=0.93, value=" + value + ")"
    seen = []
    exit_code = Sandbox([]).run(code, {}, seen.append)
    (result,) = [json.loads(it["json"]) for it in seen if it["e"] == "result"] or [None]
    events.append([exit_code, result])
json.dump(events, open(sys.argv[1], "w"))
"""


def kept_of(place: Path, values: list[str]) -> list[list[Any]]:
    """Returns (exit code, result) of a task that submits each of them."""
    out = place / "out.json"
    done = subprocess.run(
        [str(PYTHON), "-c", DRIVE.replace("PREFIX", repr(CODE)), str(out)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        input=json.dumps({"values": values}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: list[list[Any]] = json.loads(out.read_text())
    return found


def test_values_of_real_libraries_are_kept_as_the_docs_say(tmp_path: Path) -> None:
    found = kept_of(tmp_path, [value for value, _ in KEPT])
    for (value, kept), one in zip(KEPT, found, strict=True):
        assert one == [0, {"acc": 0.93, "value": kept}], value


def test_a_tensor_that_is_too_large_fails_once_and_keeps_the_rest(tmp_path: Path) -> None:
    assert kept_of(tmp_path, ["torch.zeros(1000, 1000)"]) == [[1, {"acc": 0.93}]]
