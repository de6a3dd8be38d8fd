"""The golden table of Python tasks: what SUBMIT, report, exceptions and exits do."""

from __future__ import annotations

import ast
import json
import math
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fleetctl.guest.ship.assemble import guest_source
from fleetctl.guest.task.lazy import show_source
from fleetctl.guest.task.task import RESULT_BYTES_MAX, Sandbox

Event = dict[str, Any]
NONE = "and is not recorded; a metric is a number"


class Teller:
    """A sandbox with a list of what its tasks said."""

    def __init__(self, volumes: list[dict[str, str]] | None = None) -> None:
        self.sandbox = Sandbox(volumes or [])
        self.events: list[Event] = []

    def run(self, code: str, **params: Any) -> int:
        self.events.clear()
        show_source(code)
        return self.sandbox.run(code, params, self.events.append)

    @property
    def result(self) -> Any:
        results = [json.loads(event["json"]) for event in self.events if event["e"] == "result"]
        return results[0] if results else None

    @property
    def remark(self) -> str:
        return "".join(event["message"] for event in self.events if event["e"] == "remark")

    @property
    def remarks(self) -> list[str]:
        return [event["message"] for event in self.events if event["e"] == "remark"]

    @property
    def metrics(self) -> list[Event]:
        return [event for event in self.events if event["e"] == "metric"]

    @property
    def error(self) -> Event:
        return next(event for event in self.events if event["e"] == "error")


@pytest.fixture
def task() -> Teller:
    return Teller()


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("result = sum(range(1000)); SUBMIT(total=result)", {"total": 499500}),
        ("SUBMIT(5)", {"output": 5}),
        ("SUBMIT(1, 2)", {"output": [1, 2]}),
        ("SUBMIT()", {"output": []}),
        ("SUBMIT(1, a=2)", {"a": 2}),
        ("try:\n    SUBMIT(a=1)\nexcept Exception:\n    SUBMIT(a=2)", {"a": 1}),
        ("try:\n    SUBMIT(a=1)\nexcept BaseException:\n    pass\nSUBMIT(a=2)", {"a": 1}),
        ("x = 1", None),
        ("SUBMIT(a=(1, 2), b={1: 'x'})", {"a": [1, 2], "b": {"1": "x"}}),
    ],
)
def test_what_is_submitted_first_is_the_result(task: Teller, code: str, result: Any) -> None:
    assert task.run(code) == 0
    assert task.result == result


def test_nothing_after_a_submit_is_executed(
    task: Teller, capsys: pytest.CaptureFixture[str]
) -> None:
    task.run("print('before'); SUBMIT(a=1); print('after')")
    assert capsys.readouterr().out == "before\n"


def test_globals_persist_also_those_set_before_a_submit(
    task: Teller, capsys: pytest.CaptureFixture[str]
) -> None:
    task.run("result = sum(range(1000)); SUBMIT(total=result)")
    task.run("print(result)")
    assert capsys.readouterr().out == "499500\n"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (f"SUBMIT(text='x' * {RESULT_BYTES_MAX})", "volume"),
        ("x = []\nfor _ in range(40):\n    x = [x]\nSUBMIT(x=x)", "deep"),
        ("x = []; x.append(x)\nSUBMIT(x=x)", "field `x`: it holds itself"),
        ("SUBMIT(weights=b'x' * 200_000)", "field `weights`: 200000 bytes"),
        ("class Odd:\n    def __repr__(self): 1 / 0\nSUBMIT(odd=Odd())", "repr fails"),
    ],
)
def test_a_result_that_json_cannot_hold_fails_the_task_and_says_which(
    task: Teller, code: str, says: str
) -> None:
    assert task.run(f"{code[:-1]}, acc=0.93)") == 1
    assert task.result == {"acc": 0.93}
    assert task.error["reason"] == "ResultInvalid"
    assert says in task.error["message"]


@pytest.mark.parametrize(
    ("code", "result", "says"),
    [
        ("SUBMIT(loss=float('nan'), epoch=3)", {"loss": None, "epoch": 3}, "`loss` is nan"),
        ("SUBMIT(h=[1, {'x': -float('inf')}])", {"h": [1, {"x": None}]}, "`h[1].x` is -inf"),
        ("SUBMIT(a=[float('nan')] * 5)", {"a": [None] * 5}, "and 2 more like it"),
    ],
)
def test_a_number_that_json_cannot_hold_is_null_and_said(
    task: Teller, code: str, result: Any, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert task.run(code) == 0
    assert task.result == result
    assert says in task.remark
    assert "kept as null" in task.remark
    assert says in capsys.readouterr().err


EVERYDAY = """
import collections, dataclasses, datetime, decimal, enum, pathlib, types, uuid
class Color(enum.Enum):
    RED = "red"
@dataclasses.dataclass
class Point:
    x: object
class Model:
    def model_dump(self):
        return {"at": datetime.date(2024, 1, 1)}
class Array:
    ndim, shape = 2, (1, 2)
    def tolist(self):
        return [[1, float("nan")]]
"""

# (an expression, what is kept of it), a rule a line.
EVERYDAY_VALUES: list[tuple[str, Any]] = [
    ("pathlib.Path('/ckpt/best.pt')", "/ckpt/best.pt"),
    ("datetime.datetime(2024, 1, 1)", "2024-01-01T00:00:00"),
    ("datetime.timedelta(minutes=1)", 60.0),
    ("decimal.Decimal('0.93')", 0.93),
    ("decimal.Decimal('7')", 7),
    ("decimal.Decimal('0.12345678901234567890')", "0.12345678901234567890"),
    ("uuid.UUID(int=1)", "00000000-0000-0000-0000-000000000001"),
    ("Color.RED", "red"),
    ("Point({1})", {"x": [1]}),
    ("Model()", {"at": "2024-01-01"}),
    ("types.SimpleNamespace(lr=0.1)", {"lr": 0.1}),
    ("{2, 1}", [1, 2]),
    ("collections.deque([1, 2])", [1, 2]),
    ("range(3)", [0, 1, 2]),
    ("b'ab'", "YWI="),
    ("Array()", [[1, None]]),
    ("{(1, 2): 1, pathlib.Path('x'): 2, Color.RED: 3}", {"(1, 2)": 1, "x": 2, "red": 3}),
    ("b'\\xff'.decode('utf-8', 'surrogateescape')", "\\udcff"),
    ("{'\\udcff': ['a\\udcff']}", {"\\udcff": ["a\\udcff"]}),
    ("'\U0001f600'", "\U0001f600"),
]


@pytest.mark.parametrize(("value", "kept"), EVERYDAY_VALUES)
def test_everyday_values_are_kept_as_the_docs_say(task: Teller, value: str, kept: Any) -> None:
    assert task.run(f"{EVERYDAY}\nSUBMIT(acc=0.93, value={value})") == 0
    assert task.result == {"acc": 0.93, "value": kept}


def test_values_of_numeric_libraries_are_kept(task: Teller) -> None:
    numpy = pytest.importorskip("numpy")
    values = {"a": numpy.int64(3), "b": numpy.eye(2), "c": numpy.array(numpy.nan)}
    values["d"] = {numpy.int64(1): numpy.bool_(True)}
    assert task.run("SUBMIT(**values)", values=values) == 0
    kept = {"a": 3, "b": [[1.0, 0.0], [0.0, 1.0]], "c": None, "d": {"1": True}}
    assert task.result == kept


def test_a_value_that_no_rule_knows_is_kept_as_its_repr_and_said(task: Teller) -> None:
    code = "class Odd:\n    def __repr__(self): return 'Odd()'\nSUBMIT(acc=0.93, odd=[Odd()])"
    assert task.run(code) == 0
    assert task.result == {"acc": 0.93, "odd": ["Odd()"]}
    assert "`odd[0]` is a value of type Odd: kept as its repr" in task.remark


def test_report_takes_everyday_numbers(task: Teller) -> None:
    code = "import datetime, decimal\nreport(a=decimal.Decimal('0.5'), b=datetime.timedelta(0, 2))"
    assert task.run(code) == 0
    assert task.events[0]["values"] == {"a": 0.5, "b": 2.0}


def test_a_nan_of_a_numeric_library_is_null_too(task: Teller) -> None:
    class Scalar:
        ndim = 0

        def item(self) -> float:
            return math.nan

    assert task.run("SUBMIT(loss=value)", value=Scalar()) == 0
    assert task.result == {"loss": None}


@pytest.mark.parametrize("text", ["x = [1]; x.append(x)", "x = [float('nan')]; x.append(x)"])
def test_what_is_wrong_beside_a_nan_is_still_told(task: Teller, text: str) -> None:
    assert task.run(f"{text}\nSUBMIT(x=x, loss=float('nan'))") == 1
    assert "field `x`" in task.error["message"]


def test_a_second_submit_is_said_and_changes_nothing(
    task: Teller, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "try:\n    SUBMIT(a=1)\nexcept BaseException:\n    SUBMIT(a=2)"
    assert task.run(code) == 0
    assert task.result == {"a": 1}
    assert "SUBMIT was called again" in task.remark
    assert "SUBMIT was called again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("loss='abc'", f"`loss` at step 0 is 'abc' {NONE}"),
        ("loss=None", f"`loss` at step 0 is None {NONE}"),
        ("loss=[1, 2]", f"`loss` at step 0 is [1, 2] {NONE}"),
        ("step='one'", "the step is 'one'; it must be a whole number"),
        ("step=2**70", f"the step is {2**70}; it must be a whole number"),
        ("loss=odd", f"`loss` at step 0 is a value of type Odd {NONE}"),
        ("val={'a': {'b': None}}", f"`val.a.b` at step 0 is None {NONE}"),
    ],
)
def test_a_report_of_no_number_ends_nothing_and_is_remarked_on_once(
    task: Teller, call: str, says: str
) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise SystemError

        item = __repr__

    assert task.run(f"report({call}, good=1)\nreport({call}, good=2)", odd=Odd()) == 0
    assert [it["values"] for it in task.metrics] == [{"good": 1.0}, {"good": 2.0}]
    assert task.remarks == [f"report: {says}"]


def test_nested_metrics_and_arrays_of_one_element_are_numbers_by_dotted_name(task: Teller) -> None:
    class Array:
        ndim = 2

        def __init__(self, *values: float) -> None:
            self._values = values

        def item(self) -> float:
            (value,) = self._values
            return value

    code = "report(loss=one, val={'a': 1, 'b': {'c': '2.5', 7: three}}, many=many)"
    assert task.run(code, one=Array(0.5), three=Array(3.0), many=Array(1.0, 2.0)) == 0
    values = {"loss": 0.5, "val.a": 1.0, "val.b.c": 2.5, "val.b.7": 3.0}
    assert [it["values"] for it in task.metrics] == [values]
    (remark,) = task.remarks
    assert "`many` at step 0" in remark


def test_one_number_of_a_numeric_library_is_a_number(task: Teller) -> None:
    class Scalar:
        ndim = 0

        def item(self) -> float:
            return 0.5

    assert task.run("SUBMIT(loss=value)", value=Scalar()) == 0
    assert task.result == {"loss": 0.5}


def test_an_exception_is_told_with_the_frames_of_the_task_alone(
    task: Teller, capsys: pytest.CaptureFixture[str]
) -> None:
    assert task.run("def half(x):\n    return x / 0\n\nhalf(4)") == 1
    shown = capsys.readouterr().err
    assert "return x / 0" in shown
    assert "guest" not in shown
    assert shown.count("File ") == 2
    assert task.error["reason"] == "Error"
    assert task.error["message"].endswith("ZeroDivisionError: division by zero")


def test_annotations_of_a_task_are_values_as_in_any_program(task: Teller) -> None:
    task.run("def f(x: int) -> None: ...\nSUBMIT(value=f.__annotations__['x'] is int)")
    assert task.result == {"value": True}


def test_a_syntax_error_is_an_error_of_the_task(task: Teller) -> None:
    assert task.run("x =") == 1
    assert "SyntaxError" in task.error["message"]


def test_a_long_traceback_keeps_its_last_lines(task: Teller) -> None:
    task.run("def f(n):\n    return f(n)\nf(1)")
    assert len(task.error["message"].encode()) <= 2048
    assert "RecursionError" in task.error["message"]


def test_memory_that_runs_out_has_a_reason_of_its_own(task: Teller) -> None:
    task.run("raise MemoryError")
    assert task.error["reason"] == "OOMKilled"
    assert re.search(r"MemoryError \(it held [1-9][0-9]*Mi before\)$", task.error["message"])


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit('no')", 1),
        ("raise SystemExit(0)", 0),
    ],
)
def test_sys_exit_is_the_exit_code(task: Teller, code: str, exit_code: int) -> None:
    assert task.run(code) == exit_code
    assert task.events == []


def test_reports_carry_their_step_and_count_it_when_none_is_given(task: Teller) -> None:
    task.run("report(loss=1)\nreport(loss=2, acc=0.5)\nreport(step=10, loss=3)\nreport(loss=4)")
    parts = [(event["step"], event["values"]) for event in task.events]
    assert parts == [
        (0, {"loss": 1.0}),
        (1, {"loss": 2.0, "acc": 0.5}),
        (10, {"loss": 3.0}),
        (11, {"loss": 4.0}),
    ]


def test_a_metric_that_left_the_numbers_is_reported_by_its_name(task: Teller) -> None:
    task.run("report(step=4, loss=value - value, high=value, low=-value, acc=1)", value=math.inf)
    assert [event["values"] for event in task.events] == [
        {"loss": "NaN", "high": "Infinity", "low": "-Infinity", "acc": 1.0}
    ]


def test_parameters_are_variables_and_json_is_at_hand(task: Teller) -> None:
    task.run("SUBMIT(text=json.dumps([lr, params['a-b']]))", **{"lr": 0.1, "a-b": 2})
    assert task.result == {"text": "[0.1, 2]"}


def test_the_task_is_the_main_module(task: Teller) -> None:
    task.run(
        "import pickle\nclass A: pass\nSUBMIT(ok=__name__ == '__main__', n=len(pickle.dumps(A())))"
    )
    assert task.result["ok"]


def test_the_assembled_guest_runs_a_task_alone() -> None:
    namespace: dict[str, Any] = {"__name__": "guest"}
    exec(compile(guest_source(), "guest.py", "exec"), namespace)
    events: list[Event] = []
    assert namespace["Sandbox"]([]).run("SUBMIT(peek('abc', 1))", {}, events.append) == 0
    assert events == [{"e": "result", "json": '{"output": "bc"}'}]


def test_the_assembled_guest_is_one_text_that_needs_nothing_of_ours() -> None:
    assert guest_source() == guest_source.__wrapped__()
    assert "from fleetctl" not in guest_source()


def test_the_assembled_guest_is_python_3_9(tmp_path: Path) -> None:
    ast.parse(guest_source(), feature_version=(3, 9))
    guest = tmp_path / "guest.py"
    guest.write_text(guest_source())
    # Syntax is not all: where an old interpreter is at hand, it executes the guest.
    for old in Path.home().glob(".pyenv/versions/3.9.*/bin/python"):
        program = "import runpy, sys; runpy.run_path(sys.argv[1])"
        assert subprocess.run([str(old), "-c", program, str(guest)]).returncode == 0
