"""`run --each` and `run PROGRAM.py`: a task a row, and the header of a single-file program."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest
import yaml

from fleetctl.cli.apply.runs.bring_back import WRITTEN
from fleetctl.cli.apply.runs.run_manifest import read_script_header, script_of
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import UsageError


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    here = tmp_path / "project"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def fleetctl(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def spec(*words: str) -> dict[str, object]:
    code, out, talk = fleetctl("run", "-o", "yaml", "--name", "x", *words)
    assert code == 0, talk
    made: dict[str, object] = yaml.safe_load(out)["spec"]
    return made


def test_rows_of_a_file_are_tasks_and_names_in_braces_their_parameters(project: Path) -> None:
    (project / "rows.csv").write_text("page,lang\n1,en\n2,de\n")
    made = spec("--each", "rows.csv", "--parallelism", "50", "--", "ocr", "{page}", "--lang={lang}")
    assert made["tasks"] == {"fromFile": {"path": "rows.csv"}}
    assert made["parallelism"] == 50
    assert made["template"] == {"script": 'exec ocr "${TASK_PAGE}" --lang="${TASK_LANG}"'}


def test_lines_of_another_file_are_tasks(project: Path) -> None:
    (project / "pages.txt").write_text("a b.pdf\r\n\n$(rm x).pdf\n")
    made = spec("--each", "pages.txt", "--", "ocr", "{}")
    assert made["tasks"] == {"items": [{"line": "a b.pdf"}, {"line": "$(rm x).pdf"}]}
    assert made["template"] == {"script": 'exec ocr "${TASK_LINE}"'}


def test_lines_of_stdin_are_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = io.TextIOWrapper(io.BytesIO(b"a b.pdf\nc.pdf\n"))
    monkeypatch.setattr("sys.stdin", listed)
    made = spec("--each", "-", "--", "pdftotext", "{}")
    assert made["tasks"] == {"items": [{"line": "a b.pdf"}, {"line": "c.pdf"}]}
    assert made["template"] == {"script": 'exec pdftotext "${TASK_LINE}"'}


@pytest.mark.parametrize("value", ["$(touch bad)", "a b", "'", '"; touch bad; "', "`x`", "\\", "é"])
def test_no_value_and_no_word_is_read_by_the_shell(project: Path, value: str) -> None:
    script = script_of(["printf", "%s|", "{word}", f"[{{word}}]{value}"], ["word"])
    seen = subprocess.run(
        ["sh", "-c", script], env={"TASK_WORD": value, "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert seen == f"{value}|[{value}]{value}|"
    assert list(project.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--each", "rows.csv", "--", "ocr", "{pag}"], "no row has `{pag}`"),
        (["--each", "rows.csv", "--", "ocr", "{}"], "no row has `{}`"),
        (["--each", "none.csv", "--", "ocr"], "there is no file `none.csv`"),
        (["--each", "empty.txt", "--", "ocr"], "`empty.txt` has no lines"),
        (["--each", "bad.jsonl", "--", "ocr"], "bad.jsonl:2: "),
        (["--parallelism", "4", "--", "ocr"], "`--parallelism` goes with `--each`"),
        (["--each", "rows.csv", "--parallelism", "x", "--", "ocr"], "--parallelism"),
    ],
)
def test_what_cannot_be_meant_is_refused(project: Path, words: list[str], said: str) -> None:
    (project / "rows.csv").write_text("page,lang\n1,en\n")
    (project / "bad.jsonl").write_text('{"a": 1}\n{"a": \n')
    (project / "empty.txt").write_text("\n\n")
    code, out, talk = fleetctl("run", "-o", "yaml", *words)
    assert code in (2, 4)
    assert said in talk
    assert out == ""


HEADER = '# /// script\n# requires-python = "{}"\n# dependencies = [\n#   "rich",\n# ]\n# ///\n'


def test_the_header_of_a_program_is_its_image(project: Path) -> None:
    (project / "train.py").write_text(HEADER.format(">=3.10,<3.12") + "print(1)\n")
    made = spec("train.py", "--", "--lr", "0.1")
    template = made["template"]
    assert isinstance(template, dict)
    assert template["command"] == ["python", "train.py", "--lr", "0.1"]
    assert template["image"] == {"python": "3.11", "pip": ["rich"]}
    assert template["source"] == {"path": "."}


def test_flags_add_to_the_header(project: Path) -> None:
    (project / "train.py").write_text(HEADER.format(">=3.9"))
    made = spec("--pip", "numpy", "--python", "3.10", "train.py")
    template = made["template"]
    assert isinstance(template, dict)
    assert template["image"] == {"python": "3.10", "pip": ["rich", "numpy"]}


def test_a_program_without_a_header_needs_no_image(project: Path) -> None:
    (project / "train.py").write_text("print(1)\n")
    template = {"command": ["python", "train.py"], "source": {"path": "."}}
    assert spec("--no-outputs", "train.py") == {"template": template}
    assert spec("train.py") == {"template": {**template, "outputs": list(WRITTEN)}}


def test_what_may_lack_python_brings_back_nothing(project: Path) -> None:
    (project / "data").write_text("x")
    assert "outputs" not in str(spec("--image", "alpine", "--", "wc", "data"))
    assert "outputs" not in str(spec("--", "true"))  # no files go along, so none come back
    assert "outputs" in str(spec("--image", "ghcr.io/a/b", "--", "python3", "data"))
    assert "outputs" in str(spec("--", "wc", "data"))


@pytest.mark.parametrize(
    ("wanted", "python"),
    [
        ("", ""),
        (">=3.11", "3.13"),
        (">=3.11,<3.13", "3.12"),
        ("<3.12.4", "3.12"),
        ("==3.12.*", "3.12"),
        ("==3.11.9", "3.11"),
        ("~=3.10", "3.13"),
        ("~=3.10.2", "3.10"),
        ("!=3.13", "3.12"),
        ("!=3.13.0", "3.13"),
        (">3.12", "3.13"),
        (">3.13.1", "3.13"),
        ("<=3.9", "3.9"),
    ],
)
def test_the_newest_python_that_is_allowed(project: Path, wanted: str, python: str) -> None:
    (project / "a.py").write_text(HEADER.format(wanted))
    assert read_script_header(project / "a.py").python == python


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEADER.format(">=4"), "which none of 3.9"),
        (HEADER.format("banana"), "which none of 3.9"),
        (HEADER.format("").replace("# ]", "# "), "a.py:1: the block `# /// script` is no TOML"),
        (HEADER.format("") + "\n" + HEADER.format(""), "has 2 blocks"),
        ('# /// script\n# dependencies = "rich"\n# ///\n', "must be a list of texts"),
        ("# /// script\n# requires-python = 3\n# ///\n", "must be a text"),
    ],
)
def test_a_wrong_header_is_refused(project: Path, text: str, said: str) -> None:
    (project / "a.py").write_text(text)
    with pytest.raises(UsageError) as raised:
        read_script_header(Path("a.py"))
    assert said in str(raised.value)
