"""The golden table of Modal's manner: what code does, and what `execute` returns."""

from __future__ import annotations

import math

import pytest

from fleetctl import Interpreter, as_dict
from tests.unit.guest.test_guest_task import EVERYDAY, EVERYDAY_VALUES
from tests.unit.interpreter.conftest import Make

SWEEP = (
    "import random\n"
    "random.seed(42)\n"
    "loss = 1.0 / ({lr} * {batch} + 0.01) + random.random() * 0.1\n"
    "SUBMIT(lr={lr}, batch_size={batch}, loss=loss)"
)


HANDED_IN = [
    ("result = sum(range(1000)); SUBMIT(total=result)", {"total": 499500}),
    ("SUBMIT(5)", {"output": 5}),
    ("SUBMIT(1, 2)", {"output": [1, 2]}),
    ("SUBMIT()", {"output": []}),
    ("SUBMIT(1, a=2)", {"a": 2}),
    ("try:\n    SUBMIT(a=1)\nexcept Exception:\n    SUBMIT(a=2)", {"a": 1}),
    ("try:\n    SUBMIT(a=1)\nexcept BaseException:\n    pass\nSUBMIT(a=2)", {"a": 1}),
    ("print('hi'); SUBMIT(a=1)", {"a": 1}),
    ("SUBMIT(a=(1, 2), b={1: None}, c='\\u2713')", {"a": [1, 2], "b": {"1": None}, "c": "✓"}),
    ("Final = {'done': True}", {"done": True}),
    ("Final = {'a': 1}\nSUBMIT(b=2)", {"b": 2}),
    ("import threading\nt = threading.Thread(target=lambda: SUBMIT(a=1))\n"
     "threading.excepthook = lambda _: None\nt.start(); t.join()", {"a": 1}),
]  # fmt: skip


def test_what_code_hands_in_is_the_result(modal: Interpreter) -> None:
    for code, fields in HANDED_IN:
        assert as_dict(modal.execute(code)) == fields, code


PRINTED = [
    ("input()", "[Error] EOFError: EOF when reading a line\n"),
    ("x = 1", ""),
    ("print('a'); print('b')", "a\nb\n"),
    ("1/0", "[Error] ZeroDivisionError: division by zero\n"),
    ("x=", "[Error] SyntaxError: invalid syntax (<execute>, line 1)\n"),
    ("print('before'); 1/0", "before\n\n[Error] ZeroDivisionError: division by zero\n"),
    ("import sys; print('o'); print('e', file=sys.stderr)", "o\n\ne\n"),
    ("Final = 1\n1/0", "[Error] ZeroDivisionError: division by zero\n"),
    ("import sys; sys.exit()", ""),
    ("import sys; sys.exit(0)", ""),
    ("import sys; print('x'); sys.exit(3)", "x\n\n[Error] SystemExit: 3\n"),
    ("exit('bye')", "[Error] SystemExit: bye\n"),
    ("raise KeyboardInterrupt", "[Error] KeyboardInterrupt: \n"),
    ("def f(): f()\nf()", "[Error] RecursionError: maximum recursion depth exceeded\n"),
    ("class E(Exception):\n    def __str__(self): 1/0\nraise E",
     "[Error] E: (its text cannot be had: ZeroDivisionError)\n"),
    ("print(save_to_volume('a', 'b'), load_from_volume('a'))",
     "[no volume mounted at /data] [no volume mounted at /data]\n"),
    ("print(chunk_by_size('abc', size=2, overlap=2))",
     "[Error] ValueError: chunk_by_size: overlap is 2 and size is 2; 0 <= overlap < size\n"),
]  # fmt: skip


def test_what_code_prints_and_how_it_fails_is_text(modal: Interpreter) -> None:
    for code, text in PRINTED:
        assert modal.execute(code) == text, code


def test_everyday_values_are_handed_in_as_a_task_hands_them_in(modal: Interpreter) -> None:
    modal.execute(EVERYDAY)
    for value, kept in EVERYDAY_VALUES:
        if value == "Array()":
            continue
        found = modal.execute(f"SUBMIT(acc=0.93, value={value})")
        assert as_dict(found) == {"acc": 0.93, "value": kept}, value
    (row,) = modal.execute("SUBMIT(value=Array())").value
    assert row[0] == 1
    assert math.isnan(row[1])  # as everywhere in results of interpreters
    wrong = modal.execute("x = []; x.append(x); SUBMIT(x=x)")
    assert "field `x` cannot be written as JSON" in str(wrong)


@pytest.mark.parametrize("value", ["{1: object()}", "object()", "[lambda: 1]", "b'x' * 100_000"])
def test_a_value_that_is_no_json_is_an_error_of_the_code_and_the_session_lives(
    value: str, modal: Interpreter
) -> None:
    modal.execute("kept = 7")
    said = modal.execute(f"SUBMIT(fine=1, wrong={value})")
    assert isinstance(said, str)
    assert said.startswith("[Error] TypeError: SUBMIT: field `wrong` cannot be written as JSON")
    assert modal.execute("SUBMIT(kept=kept)").kept == 7


def test_a_result_that_is_too_large_names_the_volume(modal: Interpreter) -> None:
    said = modal.execute("SUBMIT(a='x' * 9_000_000)")
    assert "ValueError: SUBMIT: the values have 9000009 bytes" in said
    assert "volume" in said


def test_a_loss_may_be_infinite_or_no_number(modal: Interpreter) -> None:
    result = modal.execute("SUBMIT(loss=float('nan'), best=float('inf'))")
    assert math.isnan(result.loss)
    assert result.best == math.inf


def test_globals_stay_also_those_that_were_set_before_submit(modal: Interpreter) -> None:
    modal.execute("result = sum(range(1000)); SUBMIT(total=result)")
    assert modal.execute("print(result)") == "499500\n"


def test_final_is_forgotten_after_each_execution(modal: Interpreter) -> None:
    assert modal.execute("Final = 'text'").output == "text"
    assert modal.execute("print('Final' in globals())") == "False\n"


def test_declared_fields_name_positional_values(modal: Interpreter) -> None:
    modal.output_fields = [{"name": "a", "type": "int"}, {"name": "b", "type": "str"}]
    assert modal.execute("SUBMIT(1, 'x')").output == {"a": 1, "b": "x"}
    assert modal.execute("SUBMIT(b=1)").output == {"b": 1}
    error = "SUBMIT expected 2 positional values (['a', 'b']), got 1"
    assert modal.execute("SUBMIT(1)").output == {"error": error}


def test_variables_are_globals_and_what_is_no_json_becomes_its_text(modal: Interpreter) -> None:
    given = {"data": [1, 2], "name": "n", "odd": {1, 2} - {2}}
    assert modal.execute("print(data, name, repr(odd))", given) == "[1, 2] n '{1}'\n"
    assert modal.execute("print(data)") == "[1, 2]\n"


def test_long_output_becomes_its_size_and_its_beginning(make: Make) -> None:
    code = "for n in range(42): print('x' * 293)"
    whole = make(summarize_stdout=False).execute(code)
    assert len(whole) == 42 * 294
    short = make().execute(code)
    assert short.startswith('[Output: 12,348 chars, 42 lines]\nPrefix: "' + "x" * 200)
    assert len(short) < 300
    assert (
        make(stdout_summary_threshold=5, stdout_summary_prefix_len=2).execute("print('abcdef')")
        == '[Output: 7 chars, 1 lines]\nPrefix: "ab..."'
    )


def test_the_golden_values_of_the_sweep(modal: Interpreter) -> None:
    losses = {
        (lr, batch): modal.execute(SWEEP.format(lr=lr, batch=batch)).loss
        for lr in (0.001, 0.01)
        for batch in (32, 64)
    }
    assert losses == {
        (0.001, 32): 23.873466489369594,
        (0.01, 32): 3.0942457101488188,
        (0.001, 64): 13.577456193359302,
        (0.01, 64): 1.6024042183073266,
    }


def test_the_helpers_are_there(modal: Interpreter) -> None:
    said = modal.execute(
        "add_buffer('b', 1); add_buffer('b', 2)\n"
        "print(peek('hello', 1, 3), grep('One\\ntwo', 'ONE'), get_buffer('b'), get_buffer('x'))\n"
        "clear_buffer(); print(get_buffer('b'), chunk_by_headers('# A\\nx')[0]['header'])\n"
        "print(chunk_by_json_keys('{\"k\": 1}')[0]['key'], len(chunk_by_timestamps('2020-01-01')))"
    )
    assert said == "ell ['One'] [1, 2] []\n[] # A\nk 1\n"


def test_the_root_profile_may_compute_and_submit_but_use_no_helper(modal: Interpreter) -> None:
    modal.tools = {"ask": lambda: 1}
    with modal.execution_profile("ROOT_INTERLOCUTOR"):
        assert "`peek` cannot be used in the profile" in modal.execute("peek('a')")
        assert "`ask` cannot be used in the profile" in modal.execute("ask()")
        assert modal.execute("SUBMIT(a=1)").a == 1
    assert modal.execute("print(peek('a'), ask())") == "a 1\n"
    said = modal.execute("peek('a')", execution_profile="ROOT_INTERLOCUTOR")
    assert "cannot be used" in said


def test_the_history_of_the_session_can_be_read_in_it(modal: Interpreter) -> None:
    modal.execute("print('one')")
    modal.execute("SUBMIT(a=1)")
    said = modal.execute(
        "print([(one['code'], one['stdout'], one['final']) for one in get_session_history()])\n"
        "print(get_last_execution()['code'])"
    )
    assert said == (
        "[(\"print('one')\", 'one\\n', None), ('SUBMIT(a=1)', '', '{\"a\": 1}')]\nSUBMIT(a=1)\n"
    )


@pytest.mark.parametrize("name", ["llm_query_batched", "rlm_query", "sub_rlm"])
def test_without_a_language_model_the_way_to_one_is_told_until_the_host_gives_a_function(
    name: str, modal: Interpreter
) -> None:
    assert "give it one with sub_lm=" in str(modal.execute(f"{name}('x')"))
    modal.tools = {name: lambda prompt: prompt.upper()}
    assert modal.execute(f"print({name}('x'))") == "X\n"
    modal.tools = {}
    assert "give it one with sub_lm=" in str(modal.execute(f"{name}('x')"))
