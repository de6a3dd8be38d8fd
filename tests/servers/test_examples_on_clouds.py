"""One manifest on every provider: all examples run through the real command line, at a cloud's
emulator as on this machine, and give the same results.

A provider is added by one line in CLOUDS. All examples are applied with one command, so that their
images are built and their tasks run side by side.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.docs.fleet import EXAMPLES, Fleet, of_all_workers
from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.emulators.modal.running import ModalEmulator

# Of objects that give results; a sweep of two dozen trials shows no more than one of two.
WORK = (
    "job/hello",
    "job/retries",
    "job/parallel-tasks",
    "job/chunks",
    "job/factorials",
    "job/embed",
    "job/placed",
    "job/thumbnails",
    "job/words",
    "job/split",
    "job/score",
    "job/report",
    "sweep/grid",
    "sweep/short",
    "job/full",
    "job/count",
    "job/trains",
    "sweep/local-and-cloud",
    "sweep/digits",
    "sweep/cartpole",
    "tr/spirals",
)
SHORTER = {
    "run_cap: 24": "run_cap: 2",
    "run_cap: 8": "run_cap: 2",
    "generations: {value: 12}": "generations: {value: 4}",
    "= load_digits(return_X_y=True)": "= (it[:600] for it in load_digits(return_X_y=True))",
    "trials: 12": "trials: 3",
    "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,": "[0, 1,",
    # Slow enough to be judged while they run.
    "run_cap: 12": "run_cap: 3",
    "time.sleep(0.01)": "time.sleep(0.08)",
}
FUNCTIONS = ("function.yaml",)
GROUPS = ("groups.yaml",)  # refused where members cannot reach each other
# By the object that each file is about. A pod installs its packages itself, at every start: a
# minute of a registry's answers, which tests of pods have without a registry.
PACKAGES = {
    "sweep/digits": "sweep.yaml",
    "sweep/cartpole": "cartpole.yaml",
    "tr/spirals": "training.yaml",
}
# Repository, key, account and model server are the reader's own.
ELSEWHERE = (
    *("sweep-wandb.yaml", "sweep-wandb-account.yaml"),
    *("endpoint.yaml", "prompts.yaml", "rl-batched.yaml", "served-model.yaml"),
    "schedule.yaml",  # it runs by a clock
    "queue.yaml",  # who is preempted, the moment decides
    "settings.yaml",  # it runs nothing
    "notify.yaml",  # it tells a program of this machine
    "policy.yaml",  # what it says is of no provider
    "source.yaml",
)

# A cluster has no prices of its own, and work with a budget begins nowhere without one.
PRICED = """
apiVersion: fleetctl.dev/v1alpha1
kind: Provider
metadata: {name: kubernetes}
spec: {prices: {perHour: 0.10}}
"""


@dataclass(frozen=True, slots=True)
class Cloud:
    """env: what the SDK needs. made and live: how many sandboxes the service says there were, and
    are. functions: whether it runs them. builds: whether it makes images with packages. beside:
    what is applied with the examples.
    """

    provider: str
    env: Mapping[str, str]
    made: Callable[[], int]
    live: Callable[[], int]
    functions: bool
    builds: bool = True
    beside: str = ""


@contextmanager
def modal(directory: Path) -> Iterator[Cloud]:
    with ModalEmulator(directory) as emulator:
        yield Cloud(
            provider="modal",
            env=emulator.env,
            made=lambda: len(emulator.state()["sandboxes"]),
            live=lambda: len(emulator.live()),
            functions=True,
        )


@contextmanager
def daytona(directory: Path) -> Iterator[Cloud]:
    with DaytonaEmulator() as emulator:

        def made() -> int:
            # The files of volumes are copied by sandboxes, too; those are no run's.
            return len([one for one in emulator.state()["sandboxes"] if "run" in one["labels"]])

        yield Cloud(
            provider="daytona",
            env=emulator.env,
            made=made,
            live=lambda: len(emulator.state()["present"]),
            functions=False,
        )


@contextmanager
def kubernetes(directory: Path) -> Iterator[Cloud]:
    del directory
    with KubernetesEmulator() as emulator:

        def made() -> int:
            # The files of volumes are copied by pods, too, which no Job made.
            pods = [it["pod"] for it in emulator.runs()]
            return len([pod for pod in pods if not pod.startswith("fleetctl-files-")])

        yield Cloud(
            provider="kubernetes",
            env=emulator.env,
            made=made,
            live=lambda: len(emulator.objects("jobs", "batch") + emulator.objects("pods")),
            functions=False,
            builds=False,
            beside=PRICED,
        )


CLOUDS: dict[str, Callable[[Path], AbstractContextManager[Cloud]]] = {
    "modal": modal,
    "daytona": daytona,
    "kubernetes": kubernetes,
}


@dataclass(frozen=True, slots=True)
class Applied:
    """All examples, after `apply --wait`."""

    fleet: Fleet
    files: Path
    cloud: Cloud | None

    def work(self) -> list[str]:
        left_out = set() if self.runs_functions else {"job/embed"}
        left_out |= set() if self.builds else set(PACKAGES)
        return [key for key in WORK if key not in left_out]

    @property
    def builds(self) -> bool:
        return self.cloud is None or self.cloud.builds

    @property
    def runs_functions(self) -> bool:
        return self.cloud is None or self.cloud.functions

    def outcome(self, key: str) -> list[Any]:
        """What is the same wherever it ran."""
        return [
            (row["index"], row["params"], row["attempts"], row["result"])
            for row in self.fleet.results(key)
        ]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Applied]:
    """The examples on this machine."""
    base, shared = tmp_path_factory.mktemp("here"), of_all_workers(tmp_path_factory)
    with applied(base, None, environments=shared / "environments") as one:
        yield one


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Applied]]:
    """The examples at a cloud, applied when they are first asked for and kept for the module:
    tests that take the clouds in turn must not apply them anew each time.
    """
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(on_cloud(name, tmp_path_factory.mktemp(name))))


# One cloud in `make test`; the examples are the same on the others.
_OTHERS = pytest.mark.only_all(reason="all examples on the other clouds")


@pytest.fixture(
    params=[it if it == "daytona" else pytest.param(it, marks=_OTHERS) for it in sorted(CLOUDS)]
)
def there(request: pytest.FixtureRequest, clouds: Callable[[str], Applied]) -> Applied:
    return clouds(request.param)


@contextmanager
def on_cloud(name: str, base: Path) -> Iterator[Applied]:
    with CLOUDS[name](base / "service") as cloud:
        with applied(base, cloud) as one:
            yield one
        assert cloud.live() == 0, "deleting everything left sandboxes"


@contextmanager
def applied(
    base: Path, cloud: Cloud | None, *, environments: Path | None = None
) -> Iterator[Applied]:
    fleet = Fleet(base / "home", environments=environments)
    fleet.env |= cloud.env if cloud is not None else {}
    functions = cloud is None or cloud.functions
    left_out = () if functions else FUNCTIONS
    left_out += () if cloud is None or cloud.builds else tuple(PACKAGES.values())
    left_out += () if cloud is None or cloud.provider == "kubernetes" else GROUPS
    files = placed(base / "examples", cloud.provider if cloud else "local", left_out=left_out)
    if cloud is not None and cloud.beside:
        (files / "beside.yaml").write_text(cloud.beside)
    try:
        fleet.ok("apply", "-f", str(files), "--wait", "--timeout", "10m")
        yield Applied(fleet, files, cloud)
    finally:
        fleet.close()


def placed(target: Path, provider: str, *, left_out: tuple[str, ...]) -> Path:
    """A copy of the examples that differs in where things are, and in how many."""
    shutil.copytree(EXAMPLES, target, ignore=shutil.ignore_patterns("__pycache__"))
    for path in target.glob("*.yaml"):
        if path.name in (*ELSEWHERE, *left_out):
            path.unlink()
            continue
        documents = re.split(r"(?m)^---\n", path.read_text("utf-8"))
        # A Provider object is about one place; the others are run at each.
        elsewhere = [one for one in documents if not re.search(r"(?m)^kind: Provider$", one)]
        path.write_text("---\n".join(_placed(one, provider) for one in elsewhere), "utf-8")
    for path in target.rglob("*.yaml"):
        text = path.read_text("utf-8")
        for long, short in SHORTER.items():
            text = text.replace(long, short)
        path.write_text(text, "utf-8")
    return target


def _placed(document: str, provider: str) -> str:
    kind = re.search(r"(?m)^kind: (\w+)$", document)
    assert kind is not None
    where = f"provider: {provider}"
    if kind[1] in ("Volume", "Function"):
        bare = re.sub(r"(?m)^  provider: \w+\n", "", document)
        return bare.replace("\nspec:\n", f"\nspec:\n  {where}\n")
    if kind[1] not in ("BatchJob", "Sweep", "TrainingRun"):
        return document
    document = re.sub(r"(?m)^  placement:.*\n(?:    .*\n)*", "", document)
    return document.replace("\nspec:\n", f"\nspec:\n  placement: {{{where}}}\n")


def test_every_example_gives_the_results_that_it_gives_on_this_machine(
    here: Applied, there: Applied
) -> None:
    expected = {key: here.outcome(key) for key in there.work()}
    assert {key: there.outcome(key) for key in there.work()} == expected


def test_all_of_it_ran_at_the_cloud(there: Applied) -> None:
    assert there.cloud is not None
    for key in there.work():
        attempts = there.fleet.json("get", "attempts", key)["items"]
        assert {one["status"]["provider"] for one in attempts} == {there.cloud.provider}


def test_each_attempt_has_one_sandbox_and_the_sequential_batch_has_one_for_all(
    there: Applied,
) -> None:
    assert there.cloud is not None
    count = 0
    for key in (*there.work(), "sweep/early"):
        if key == "job/embed":
            continue  # a function's containers run it
        items = there.fleet.json("get", "attempts", key)["items"]
        boxes = len({item["status"]["sandbox"] for item in items})
        assert key != "job/factorials" or boxes == 1
        assert key in ("job/factorials", "sweep/local-and-cloud") or boxes == len(items)
        count += boxes
    assert there.cloud.made() == count
    assert there.cloud.live() == 0


def test_trials_that_do_badly_are_ended_there_too(there: Applied) -> None:
    """Which ones, its moment decides; the best is never one of them."""
    rows = there.fleet.json("results", "sweep/early")
    best = max(rows, key=lambda row: row["params"]["lr"])
    assert {row["state"] for row in rows} == {"Succeeded", "Stopped"}
    assert best["state"] == "Succeeded"


def test_what_a_task_printed_is_read_afterwards(there: Applied) -> None:
    logged = there.fleet.ok("logs", "job/hello", "--index", "1", "--no-prefix")
    assert logged == "greeting Grace\n"
    words = ("logs", "job/retries", "--index", "1", "--attempt", "1", "--no-prefix")
    assert there.fleet.ok(*words).splitlines() == [
        "task 1, attempt 1",
        "the disk on the left is full",
    ]


def test_files_that_tasks_saved_are_on_the_volume(there: Applied, tmp_path: Path) -> None:
    there.fleet.ok("cp", "volume/rlm-volume-dspy:results", str(tmp_path / "results"))
    found = {path.name: path.read_text("utf-8") for path in (tmp_path / "results").iterdir()}
    assert found == {
        "chunk_0.json": "[2, 4, 6]",
        "chunk_1.json": "[8, 10, 12]",
        "chunk_2.json": "[14, 16, 18]",
    }


def test_the_killed_training_went_on_from_its_checkpoint(there: Applied) -> None:
    if "tr/spirals" not in there.work():
        pytest.skip("it needs a package, and this one builds no images")
    made, trained = there.fleet.results("tr/spirals")
    assert (made["attempts"], trained["attempts"]) == (1, 2)
    assert trained["result"]["resumed_from"] == 200
    attempts = there.fleet.json("get", "attempts", "tr/spirals")["items"]
    killed = next(one for one in attempts if one["status"]["phase"] == "Failed")
    assert killed["status"]["exitCode"] == 128 + 9


def test_applying_it_all_again_makes_no_sandbox(there: Applied) -> None:
    assert there.cloud is not None
    before = there.cloud.made()
    said = there.fleet.ok("apply", "-f", str(there.files), "--wait")
    assert said.count(" unchanged") > len(there.work())
    assert " created" not in said and " configured" not in said, said
    assert there.cloud.made() == before
