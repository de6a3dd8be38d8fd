"""submitit's names: a notebook of its user with one line changed, and the options of a job.

The cells run in a kernel, as Jupyter runs them, with the environment of a user.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

from fleetctl import Fleet as Client
from fleetctl.client import submitit
from fleetctl.client.submitit import AutoExecutor
from fleetctl.common.errors import UsageError
from tests.docs.fleet import Fleet

NOTEBOOKS = Path(__file__).with_name("notebooks")
CELL_S = 300  # of a machine that does much else


def test_a_notebook_of_submitit_runs_with_its_import_changed(empty: Fleet, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(NOTEBOOKS, project)
    notebook = nbformat.read(project / "submitit.ipynb", as_version=4)
    code = [it.source for it in notebook.cells if it.cell_type == "code"]
    assert sum("fleetctl" in it for it in code) == 1

    run_notebook(notebook, project, empty.env)

    assert "".join(map(text_of_cell, notebook.cells)).splitlines() == [
        "12",
        "[11, 22, 33]",
        "[[0], [2], [4]] COMPLETED",
        "FAILED division by zero",
    ]


def run_notebook(
    notebook: NotebookNode,
    directory: Path,
    env: Mapping[str, str],
) -> None:
    """Runs all cells in a kernel of this interpreter, and fills in their outputs. Raises the
    CellExecutionError of a cell that fails, with its traceback.
    """
    with tempfile.TemporaryDirectory() as sockets:  # short: a socket's path has at most 107 bytes
        own = KernelSpecManager(kernel_dirs=[])  # this interpreter, whatever a home has installed
        manager = KernelManager(
            kernel_spec_manager=own,
            transport="ipc",
            ip=f"{sockets}/kernel",
        )
        client = NotebookClient(
            notebook,
            km=manager,
            timeout=CELL_S,
            startup_timeout=CELL_S,
            resources={"metadata": {"path": str(directory)}},
        )
        client.execute(env=dict(env))


def text_of_cell(cell: NotebookNode) -> str:
    """Returns the text that a cell has printed."""
    streams = [it for it in cell.get("outputs", ()) if it.output_type == "stream"]
    return "".join(it.text for it in streams if it.name == "stdout")


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"timeout_min": 2, "mem_gb": 4, "cpus_per_task": 3}, ("120", "4Gi", 3.0, None)),
        ({"slurm_mem": "8GB", "gpus_per_node": 2}, (None, "8Gi", None, "any:2")),
        ({"slurm_gres": "gpu:a100:4", "timeout": "1h"}, ("3600", None, None, "A100:4")),
        ({"slurm_gpus_per_node": "h100:8"}, (None, None, None, "H100:8")),
    ],
)
def test_options_of_submitit_are_fields_of_the_job(
    given: dict[str, object], made: tuple[object, ...], tmp_path: Path
) -> None:
    executor = AutoExecutor(folder="logs", fleet=Client(tmp_path))
    executor.update_parameters(**given)
    chosen = executor.options
    time = {None: None, 120: "120", "1h": "3600"}[chosen.timeout]  # type: ignore[index]
    assert (time, chosen.memory, chosen.cpu, chosen.gpu) == made


def test_options_without_a_meaning_here_are_warned_about_or_refused(tmp_path: Path) -> None:
    executor = AutoExecutor(folder="logs", fleet=Client(tmp_path))
    with pytest.warns(UserWarning, match="without effect here: slurm_partition, slurm_qos"):
        executor.update_parameters(slurm_partition="dev", slurm_qos="low", name="x", nodes=1)
    with pytest.raises(UsageError, match="one process on one machine"):
        executor.update_parameters(tasks_per_node=8)
    with pytest.raises(UsageError, match="is a lambda"):
        executor.submit(lambda: 1)


def test_a_job_is_a_future_with_its_state(tmp_path: Path) -> None:
    job = submitit.Job()
    assert job.state == "PENDING"
    assert job.cancel() and job.state == "CANCELLED"
    job.wait()
