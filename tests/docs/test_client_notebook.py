"""The Python client in a real kernel: what a notebook's user sees of plans, waits and results."""

from __future__ import annotations

import re
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.docs.fleet import HANG_S, Fleet

CELLS = (
    "from fleetctl import BatchJob, Fleet\n"
    "fleet = Fleet()\n"
    "job = BatchJob('cells', parallelism=2, tasks={'items': [{'x': x} for x in range(4)]},\n"
    "    template={'python': 'report(loss=x)\\nSUBMIT(y=x)', 'outputs': ['*.txt']})",
    "fleet.plan(job)",
    "fleet.apply(job)",
    "fleet.wait('job/cells')",
    "fleet.results('job/cells')",
    "fleet.list()",
    "fleet.events('job/cells')",
    "fleet.plot('job/cells', metrics='loss')",
    "fleet.diff(BatchJob('cells', parallelism=2, maxInfraRetries=7, "
    "tasks=job.spec.tasks, template=job.spec.template))",
    "from fleetctl import AsyncFleet\n"
    "async with AsyncFleet() as other:\n"
    "    rows = await other.results('job/cells')\n"
    "    ended = await other.wait('job/cells', 'finished')\n"
    "rows",
)


@pytest.fixture
def kernel(empty: Fleet, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A home that a kernel's programs find by their environment."""
    for name in ("FLEETCTL_HOME", "PATH"):
        monkeypatch.setenv(name, empty.env[name])
    empty.start_controller()
    return empty


def run_cells(*sources: str) -> list[Any]:
    """Returns the outputs of each cell."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(it) for it in sources])
    # A started kernel is waited for as long as a hung test.
    client = NotebookClient(book, timeout=HANG_S, startup_timeout=HANG_S, kernel_name="python3")
    return [cell.outputs for cell in client.execute().cells]


def html_of(outputs: list[Any]) -> str:
    """Returns the HTML of a cell, its displays first."""
    return "\n".join(it["data"].get("text/html", "") for it in outputs if "data" in it)


@pytest.mark.usefixtures("kernel")
def test_a_notebook_shows_plans_progress_and_results() -> None:
    _, plan, applied, waited, results, listed, events, plot, diff, other = map(
        html_of, run_cells(*CELLS)
    )
    assert "<td>batchjob/cells</td><td>create</td><td>4 new</td>" in plan
    assert "<td>batchjob/cells</td><td>created</td>" in applied
    # A single display, whose last update is the end; then the object itself.
    assert len(re.findall("<progress", waited)) == 1
    assert '<progress value="4" max="4"></progress></td><td>Succeeded</td>' in waited
    assert "<th>phase</th><td>Succeeded</td>" in waited
    for table in (results, other[other.index("<th>params") :]):
        assert table.count("<td>Succeeded</td>") == 4 and "<th>metric</th>" in table
    assert '<progress value="4" max="4">' in other  # the wait of the async client as well
    assert "<td>BatchJob</td><td>cells</td>" in listed
    assert "<td>Completed</td>" in events
    assert plot.startswith("<svg") and "loss" in plot
    assert "<ins>+  maxInfraRetries: 7</ins>" in diff


@pytest.mark.usefixtures("kernel")
def test_an_error_of_a_wait_has_its_reason_in_the_notebook() -> None:
    with pytest.raises(CellExecutionError, match=r"FailedIndexes.*ValueError: no"):
        run_cells(
            "from fleetctl import BatchJob, Fleet\n"
            "fleet = Fleet()\n"
            "fleet.apply(BatchJob('bad', template={'python': \"raise ValueError('no')\"}))\n"
            "fleet.wait('job/bad')"
        )


def test_ipython_is_not_imported_outside_a_kernel(kernel: Fleet) -> None:
    program = (
        "import sys; from fleetctl import Fleet, BatchJob\n"
        "fleet = Fleet(); fleet.apply(BatchJob('plain', template={'python': 'pass'}))\n"
        "fleet.wait('job/plain', progress=True); print('IPython' in sys.modules)"
    )
    answer = kernel.shell(f'python -c "{program}"')
    assert answer.out == "False\n", answer
    assert "batchjob/plain: Succeeded, 1/1 done" in answer.talk.splitlines()
