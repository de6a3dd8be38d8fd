"""A task for each file of a folder against a task for each row of a CSV, and tiny tasks with a
source of many small files against the same with a source of one: pairs in one run, on provider
`local`.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.bench.harness import Figure, Home, home, median, timed

FILES, FILE_BYTES = 500, 1024
ROUNDS = 5
TASKS_WITH_SOURCE = 300
HEAD = "apiVersion: fleetctl.dev/v1alpha1\nkind: BatchJob\n"


def figures() -> list[Figure]:
    return [_folder(), _source()]


def _folder() -> Figure:
    rows, files = [], []
    with home() as at:
        at.run("up", "--detach")
        folder = at.path / "texts"
        _fill(folder, FILES)
        names = "".join(f"{number}\n" for number in range(FILES))
        (at.path / "rows.csv").write_text(f"row\n{names}")
        for number in range(ROUNDS):
            _run(at, f"rows-{number}", "fromFile: rows.csv", 'test -n "$TASK_ROW"', rows)
            _run(at, f"files-{number}", 'fromFiles: "texts/*.txt"', 'test -s "$TASK_FILE"', files)
    ratio = median([one / other for one, other in zip(files, rows, strict=True)])
    return Figure(
        f"{FILES} files of {FILE_BYTES} bytes, a task each, against the rows of a CSV",
        f"{median(files):.2f} s against {median(rows):.2f} s: {ratio:.2f} times",
        "1.2 times",
        ratio <= 1.2,
    )


def _source() -> Figure:
    one_file, many_files = [], []
    with home() as at:
        at.run("up", "--detach")
        _fill(at.path / "one", 1)
        _fill(at.path / "many", FILES)
        for number in range(ROUNDS):
            for name, spent in (("one", one_file), ("many", many_files)):
                rows = f"completions: {TASKS_WITH_SOURCE}"
                _run(at, f"{name}-{number}", rows, "test -s 0.txt", spent, source=name)
    ratio = median([many / one for many, one in zip(many_files, one_file, strict=True)])
    return Figure(
        f"{TASKS_WITH_SOURCE} tiny tasks with a source of {FILES} small files, against a source of"
        " one",
        f"{median(many_files):.2f} s against {median(one_file):.2f} s: {ratio:.2f} times",
        "1.6 times",
        ratio <= 1.6,
    )


def _run(
    at: Home, name: str, tasks: str, script: str, spent: list[float], *, source: str = ""
) -> None:
    code = f", source: {{path: {source}}}" if source else ""
    text = (
        f"{HEAD}metadata: {{name: {name}}}\nspec:\n  parallelism: 4\n  tasks: {{{tasks}}}\n"
        f"  template: {{script: '{script}'{code}}}\n"
    )
    path = at.write(f"{name}.yaml", text)
    with timed(spent):
        at.run("apply", "-f", str(path), "--wait")


def _fill(folder: Path, count: int) -> None:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.txt").write_bytes(os.urandom(FILE_BYTES // 2).hex().encode())
