"""What differs in the manner of Daytona's: SUBMIT, error texts, the checkout, the memory folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetctl import DaytonaInterpreter
from fleetctl.common.errors import Refused, UsageError
from tests.interpreters import MACHINES, Place, make_repository
from tests.unit.interpreter.conftest import Make


@pytest.fixture
def checkout(make: Make, tmp_path: Path, place: Place) -> DaytonaInterpreter:
    return make(DaytonaInterpreter, repo_url=place.serve(make_repository(tmp_path)))


HANDED_IN = [
    ("SUBMIT(total=sum(range(1000)))", {"total": 499500}),
    ("SUBMIT()", {}),
    ("try:\n    SUBMIT(a=1)\nexcept Exception:\n    SUBMIT(a=2)", {"a": 1}),
    ("print('hi'); SUBMIT(a=1)", {"a": 1}),
]


def test_submit_takes_keywords(daytona: DaytonaInterpreter) -> None:
    for code, output in HANDED_IN:
        assert daytona.execute(code).output == output, code


PRINTED = [
    ("print('kept', Final)", "NameError: name 'Final' is not defined"),
    ("1/0", "ZeroDivisionError: division by zero"),
    ("print('x'); 1/0", "x\n\nZeroDivisionError: division by zero"),
    ("raise ValueError", "ValueError"),
    ("Final = {'a': 1}\nprint(Final)", "{'a': 1}\n"),
]


def test_errors_are_name_and_text(daytona: DaytonaInterpreter) -> None:
    for code, text in PRINTED:
        assert daytona.execute(code) == text, code


def test_positional_values_need_declared_fields(daytona: DaytonaInterpreter) -> None:
    assert daytona.execute("SUBMIT(5)") == (
        "TypeError: SUBMIT takes named values here, such as SUBMIT(output=5);"
        " it was called with 1 without a name"
    )
    daytona.output_fields = [{"name": "a"}, {"name": "b", "type": "int"}]
    assert daytona.execute("SUBMIT(1, b=2)").output == {"a": 1, "b": 2}
    assert (
        daytona.execute("SUBMIT(1)") == "TypeError: SUBMIT(a, b): missing a required argument: 'b'"
    )
    assert "unexpected keyword argument 'c'" in daytona.execute("SUBMIT(a=1, b=2, c=3)")


def test_code_starts_in_the_checkout_of_the_repository(checkout: DaytonaInterpreter) -> None:
    result = checkout.execute(
        "import os\n"
        "SUBMIT(here=os.getcwd() == REPO_PATH, name=os.path.basename(REPO_PATH),"
        " above=os.path.basename(os.path.dirname(REPO_PATH)), files=sorted(os.listdir('.')),"
        " log=run('git log --oneline')['stdout'].count('\\n'))"
    )
    assert result.output == {
        "here": True,
        "name": "sample-repo",
        "above": "workspace",
        "files": [".git", "README.md", "code.py", "deep"],
        "log": 1,
    }


@pytest.mark.parametrize(("ref", "files"), [("feature/one", True), ("v1", False), ("main", False)])
def test_the_ref_is_a_branch_or_a_tag(
    ref: str, files: bool, make: Make, tmp_path: Path, place: Place
) -> None:
    url = place.serve(make_repository(tmp_path))
    interpreter = make(DaytonaInterpreter, repo_url=url, repo_ref=ref)
    assert interpreter.execute("SUBMIT(new=bool(find_files('.', 'new.txt')))").new is files


def test_a_repository_or_ref_that_is_not_there_is_refused(
    make: Make, tmp_path: Path, place: Place
) -> None:
    url = place.serve(make_repository(tmp_path))
    with pytest.raises(Refused, match="`no/such` is not in"):
        make(DaytonaInterpreter, repo_url=url, repo_ref="no/such").start()
    with pytest.raises(UsageError, match="there is no repo_url"):
        make(DaytonaInterpreter, repo_ref="main")
    with pytest.raises(UsageError, match="url is `ext::sh`"):
        make(DaytonaInterpreter, repo_url="ext::sh").start()
    assert place.sandboxes() == 0


def test_without_a_repository_code_works_in_an_empty_directory(daytona: DaytonaInterpreter) -> None:
    said = daytona.execute("import os; print(os.path.basename(os.getcwd()), os.listdir('.'))")
    assert said == "daytona-workspace []\n"


def test_programs_and_files_of_the_checkout(checkout: DaytonaInterpreter) -> None:
    result = checkout.execute(
        "import os\n"
        "SUBMIT(ok=run('cat README.md | head -1'), bad=run('echo no >&2; exit 3', cwd='deep'),"
        " where=run('pwd', cwd='deep')['stdout'].endswith('/deep\\n'),"
        " text=read_file('deep/inner.txt'), same=resolve_path('a') == os.path.join(REPO_PATH, 'a'),"
        " listed=[os.path.relpath(one) for one in list_files('deep')], none=list_files('nowhere'),"
        " found=[os.path.relpath(one) for one in find_files(pattern='**/*.txt')],"
        " outline=extract_python_ast('code.py'))"
    )
    assert result.ok == {"exit_code": 0, "stdout": "# Sample\n", "stderr": "", "ok": True}
    assert result.bad == {"exit_code": 3, "stdout": "", "stderr": "no\n", "ok": False}
    assert (result.where, result.text, result.same) == (True, "inner\n", True)
    assert (result.listed, result.none) == (["deep/inner.txt"], [])
    assert result.found == ["deep/inner.txt"]
    assert json.loads(result.outline) == [
        {"type": "Class", "name": "A", "methods": ["m"], "doc": "An A."},
        {"type": "Function", "name": "f", "doc": ""},
    ]


def test_the_workspace_helpers_stay_inside(checkout: DaytonaInterpreter) -> None:
    result = checkout.execute(
        "workspace_write('new/a.txt', 'one '); path = workspace_append('new/a.txt', 'two')\n"
        "SUBMIT(inside=path.startswith(REPO_PATH), text=workspace_read('new/a.txt'),"
        " missing=workspace_read('none')[:16], up=workspace_write('../x', 'y'),"
        " absolute=workspace_read('/etc/passwd'), empty=workspace_read(''))"
    )
    assert (result.inside, result.text, result.missing) == (True, "one two", "[file not found:")
    for said in (result.up, result.absolute, result.empty):
        assert said.startswith("[error: ")
        assert "is not a path inside of" in said


def test_grep_is_a_regular_expression_and_minds_case(daytona: DaytonaInterpreter) -> None:
    code = (
        "t = 'a1\\nERROR x\\nerror y\\nb2'\nSUBMIT(a=grep(t, 'E.*R'), b=grep(t, '^err', context=1))"
    )
    assert daytona.execute(code).output == {"a": ["ERROR x"], "b": ["ERROR x\nerror y\nb2"]}


def test_buffers_say_what_they_did(daytona: DaytonaInterpreter) -> None:
    result = daytona.execute(
        "SUBMIT(one=add_buffer('b', 1), two=add_buffer('b', 2), got=get_buffer('b'),"
        " cleared=clear_buffer('b'), all=clear_buffer(), none=get_buffer('b'))"
    )
    assert result.output == {
        "one": {"status": "ok", "name": "b", "count": 1},
        "two": {"status": "ok", "name": "b", "count": 2},
        "got": [1, 2],
        "cleared": {"status": "ok", "scope": "single", "name": "b"},
        "all": {"status": "ok", "scope": "all"},
        "none": [],
    }


def test_background_processes_go_on_between_executions(daytona: DaytonaInterpreter) -> None:
    daytona.execute("start_background_process('p', 'echo begun; read x')")
    result = daytona.execute(
        "import time\n"
        "while 'EXITED' not in read_process_logs('p'): time.sleep(0.01)\n"
        "SUBMIT(logs=read_process_logs('p'), again=start_background_process('p', 'sleep 600'),"
        " twice=start_background_process('p', 'true'), running=read_process_logs('p', tail=1),"
        " killed=kill_process('p'), gone=kill_process('p'), unknown=read_process_logs('q'))"
    )
    assert result.logs == "Status: EXITED(1)\nLogs:\nbegun\n"
    assert result.again.startswith("started process p (pid ")
    assert result.twice.startswith("process p is already running")
    assert result.running == "Status: RUNNING\nLogs:\n"
    assert result.killed == "process p was ended"
    assert result.gone == "process p was not started"
    assert result.unknown == "process q was not started"


def test_the_memory_folder_is_the_volume(make: Make, place: Place) -> None:
    interpreter = make(DaytonaInterpreter, volume_name="vol")
    result = interpreter.execute(
        "path = save_to_volume('artifacts/a.txt', 'kept')\n"
        "open('/home/daytona/memory/meta/b.txt', 'w').write('too')\n"
        "SUBMIT(path=path, text=load_from_volume('artifacts/a.txt'), root=str(MEMORY_ROOT),"
        " folders=sorted(one.name for one in MEMORY_ROOT.iterdir()))"
    )
    assert result.output == {
        "path": "/home/daytona/memory/artifacts/a.txt",
        "text": "kept",
        "root": "/home/daytona/memory",
        "folders": ["artifacts", "buffers", "memory", "meta"],
    }
    assert place.read_volume("vol", "artifacts/a.txt") == "kept"
    interpreter.commit()
    assert place.read_volume("vol", "meta/b.txt") == "too"


def test_without_a_volume_the_memory_folder_goes_with_the_sandbox(
    daytona: DaytonaInterpreter, place: Place
) -> None:
    said = daytona.execute("print(save_to_volume('a', 'b'))")
    assert said == "[no volume mounted at /home/daytona/memory]\n"
    # On machines, sessions side by side have one file system: it has no path of its own there.
    memory = "MEMORY_ROOT" if place.name in MACHINES else '"/home/daytona/memory"'
    write = f"import os\nos.makedirs(f'{{{memory}}}/artifacts', exist_ok=True)\n"
    daytona.execute(write + f"open(f'{{{memory}}}/artifacts/x', 'w').write('1')")
    daytona.shutdown()
    assert daytona.execute(f"import os; print(os.listdir({memory}))") == "[]\n"
