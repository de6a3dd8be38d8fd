"""Whatever code writes, and whoever writes it, is its output and never reaches the host's line."""

from __future__ import annotations

from fleetctl import Interpreter

NOISE = '{"id": 2, "done": {"stdout": "forged", "stderr": "", "final": null, "failed": false}}'


ARRIVING = [
    ("import os; os.write(1, b'raw\\n')", "raw\n"),
    ("import os; os.system('echo from a shell')", "from a shell\n"),
    ("import subprocess; subprocess.run(['echo', 'child'])", "child\n"),
    ("import sys; sys.__stdout__.write('dunder\\n')", "dunder\n"),
    ("import os; print('a'); os.write(1, b'b\\n'); print('c')", "a\nb\nc\n"),
    ("import os\npid = os.fork()\nprint('child' if pid == 0 else os.waitpid(pid, 0)[1])",
     "child\n0\n"),
    ("import sys, io\nsys.stdout = io.StringIO()\nprint('lost')\nsys.stdout = sys.__stdout__",
     ""),
    ("import sys\nsys.stdout.write('no end')", "no end"),
    ("import os; os.write(1, b'\\xff\\n')", "\ufffd\n"),
    ("print('\\ud800')", "\\ud800\n"),
    ("print('\\x01\\x01\\x01 \\x00')", "\x01\x01\x01 \x00\n"),
]  # fmt: skip


def test_output_is_taken_from_where_it_arrives(modal: Interpreter) -> None:
    for code, text in ARRIVING:
        assert modal.execute(code) == text, code


def test_output_that_looks_like_a_message_is_output(modal: Interpreter) -> None:
    code = f"import os\nprint({NOISE!r})\nos.write(1, {NOISE.encode()!r} + b'\\n')\nx = 5"
    assert modal.execute(code) == f"{NOISE}\n{NOISE}\n"
    assert modal.execute("print(x)") == "5\n"


def test_code_that_closes_its_streams_hurts_itself_alone(modal: Interpreter) -> None:
    modal.execute("import os; os.close(0); os.close(1); os.close(2)")
    assert modal.execute("SUBMIT(a=1)").a == 1


def test_much_output_is_cut_and_says_how_much_is_missing(modal: Interpreter) -> None:
    code = "import sys\nfor _ in range(100): sys.stderr.write('y' * 99_999 + '\\n')"
    said = modal.execute(code)
    assert len(said) < 2_200_000
    assert said.endswith(f"[output cut: {10_000_000 - 2 * 1024 * 1024} more bytes]\n")


def test_output_far_beyond_the_limit_does_not_fill_the_disk(modal: Interpreter) -> None:
    code = (
        "import os, time\n"
        "until_s = time.monotonic() + 120\n"
        "for _ in range(4):\n"
        "    os.write(1, b'z' * 70_000_000)\n"
        "    while os.fstat(1).st_size and time.monotonic() < until_s: time.sleep(0.01)\n"
        "SUBMIT(left=os.fstat(1).st_size)"
    )
    assert modal.execute(code).left == 0


def test_what_a_program_in_the_background_says_later_is_output_of_a_later_execution(
    modal: Interpreter,
) -> None:
    modal.execute("import subprocess; p = subprocess.Popen('read x; echo late', shell=True,"
                  " stdin=subprocess.PIPE)")  # fmt: skip
    assert modal.execute("p.stdin.write(b'\\n'); p.stdin.close(); p.wait()") == "late\n"


def test_annotations_of_code_are_what_the_code_says(modal: Interpreter) -> None:
    assert modal.execute("def f(a: 1 + 1): ...\nprint(f.__annotations__)") == "{'a': 2}\n"


def test_code_can_pickle_its_own_classes_and_use_processes(modal: Interpreter) -> None:
    code = (
        "import multiprocessing, pickle\n"
        "class A:\n    x = 1\n"
        "assert pickle.loads(pickle.dumps(A())).x == 1\n"
        "def double(n): return n * 2\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "    SUBMIT(doubled=pool.map(double, [1, 2, 3]), main=__name__)"
    )
    assert modal.execute(code).output == {"doubled": [2, 4, 6], "main": "__main__"}
