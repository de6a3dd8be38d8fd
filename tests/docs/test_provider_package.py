"""A provider of another project: the package in provider_package, built to a wheel and installed
into an environment of its own, passes the contract and does work there without a change here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.fleet import ROOT, Answer, Fleet
from tests.servers.forked_program import open_program_of

PACKAGE = Path(__file__).parent / "provider_package"
UV = Path(sys.executable).with_name("uv")
LINES_MAX = 300  # of a provider, without its tests
PROGRAM = """#!{python}
from fleetctl.cli.main import main

raise SystemExit(main())
"""
SHED = """
apiVersion: fleetctl.dev/v1alpha1
kind: Provider
metadata: {{name: backyard}}
spec:
  type: shed
  shed: {{root: {root}, usdPerHour: 3.6}}
  limits: {{maxConcurrent: 2}}
"""
WORK = """
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: chairs}
spec:
  placement: {provider: backyard}
  tasks: {items: [{item: 1}, {item: 2}, {item: 3}]}
  backoffLimitPerIndex: 2
  template:
    script: |
      echo "sawing $TASK_ITEM"
      if [ "$TASK_ITEM" = 2 ] && [ ! -e /tmp/MARK ]; then touch /tmp/MARK; exit 9; fi
"""


@pytest.fixture(scope="module")
def bin_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of an environment with fleetctl, its tests' packages, and this package's wheel."""
    place = tmp_path_factory.mktemp("outside")
    source = place / "source"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__"))
    pip = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check")
    wheel = ("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", place, source)
    subprocess.run([*pip, *wheel], check=True)
    env = place / "env"
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, env], check=True)
    (found,) = place.glob("*.whl")
    python = env / "bin" / "python"
    install = (UV, "pip", "install", "-q", "--python", python, "--no-deps", "--offline", found)
    subprocess.run(install, check=True)
    site = next(env.glob("lib/python*/site-packages"))
    (site / "fleetctl_here.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    program = env / "bin" / "fleetctl"
    program.write_text(PROGRAM.format(python=python))
    program.chmod(0o755)
    return env / "bin"


class Outside(Fleet):
    """Commands of the environment that has the package: forks of a process of its Python; in a
    shell, the installed program.
    """

    def shell(self, line: str, *, installed: bool = True) -> Answer:
        return super().shell(line, installed=installed)


@pytest.fixture(scope="module")
def fleet(bin_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    path = f"{bin_directory}{os.pathsep}{os.environ['PATH']}"
    with open_program_of(ROOT, bin_directory / "python") as programs:
        made = Outside(
            tmp_path_factory.mktemp("home"), {"PATH": path}, program=programs / "fleetctl"
        )
        yield made
        made.close()


def test_the_installed_program_knows_it(fleet: Outside) -> None:
    shown = fleet.shell("fleetctl explain provider.spec.shed")
    assert (shown.code, "usdPerHour" in shown.out) == (0, True), shown


def test_it_is_small_and_imports_the_public_face_alone() -> None:
    import fleetctl.providers

    texts = [path.read_text() for path in (PACKAGE / "fleetctl_shed").glob("*.py")]
    assert sum(len(text.splitlines()) for text in texts) <= LINES_MAX
    homes = {it for text in texts for it in re.findall(r"(?:from|import) (fleetctl[\w.]*)", text)}
    assert {it for it in homes if not it.startswith("fleetctl_shed")} == {"fleetctl.providers"}
    names = {
        name
        for text in texts
        for block in re.findall(r"from fleetctl\.providers import (\([^)]*\)|.*)", text)
        for name in re.findall(r"\w+", block)
    }
    assert names <= set(fleetctl.providers.__all__)
    assert not re.search(r"class \w+\(\w*(Provider|Backend)\)", "\n".join(texts))


def test_it_passes_the_contract(bin_directory: Path, tmp_path: Path) -> None:
    shutil.copy(PACKAGE / "shed_contract.py", tmp_path / "test_shed.py")
    words = (bin_directory / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = subprocess.run(
        [*words, "--basetemp", tmp_path / "worlds", tmp_path / "test_shed.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) >= 29
    assert "skipped" not in done.stdout


def test_work_runs_at_it_and_every_screen_knows_it(fleet: Outside, tmp_path: Path) -> None:
    root = tmp_path / "shed"
    root.mkdir()
    shed, work = tmp_path / "shed.yaml", tmp_path / "work.yaml"
    shed.write_text(SHED.format(root=root))
    work.write_text(WORK.replace("/tmp/MARK", str(tmp_path / "mark")))
    both = ("-f", str(shed), "-f", str(work))

    explained = fleet.ok("explain", "provider.spec.shed")
    assert "usdPerHour" in explained and "that all tasks of the shed are in" in explained
    fleet.ok("validate", *both)
    wrong = SHED.format(root=root).replace("usdPerHour", "usdPerHours")
    refused = fleet.run("validate", "-f", "-", stdin=wrong)
    assert (refused.code, "did you mean `usdPerHour`" in refused.talk) == (2, True), refused
    plan = fleet.run("plan", *both)
    assert "provider/backyard" in plan.out and "batchjob/chairs" in plan.out

    fleet.ok("apply", "-f", str(shed))
    gpu = WORK.replace("  template:", "  template:\n    resources: {gpu: 'A100:1'}")
    refused = fleet.run("apply", "-f", "-", stdin=gpu)
    assert refused.code != 0 and "a shed has no GPUs" in refused.talk, refused
    plan = fleet.run("plan", "-f", str(work)).out
    assert "prices: backyard: its package" in plan and "at most $7.20/h" in plan

    done = fleet.ok("apply", *both, "--wait")
    assert "batchjob/chairs succeeded: 3 done" in done
    assert "sawing 3" in fleet.ok("logs", "job/chairs", "--index", "2")
    assert fleet.status("job/chairs")["retries"] == 1
    assert "backyard" in fleet.ok("get", "providers")
    assert "backyard" in fleet.ok("cost", "--by", "provider")
    assert "shed" in fleet.ok("describe", "provider/backyard")
    doctor = fleet.run("doctor").out
    assert "from fleetctl-shed 1.0" in doctor and f"`{root}` can be written to" in doctor

    fleet.ok("delete", "job/chairs")
    assert "chairs" not in fleet.ok("get", "jobs")
    assert list(root.glob("boxes/*/box.json")) == []
    assert "no orphans" in fleet.run("orphans", "--provider", "backyard").talk


def test_a_living_task_of_it_is_deleted_with_its_object(fleet: Outside, tmp_path: Path) -> None:
    root = tmp_path / "shed"
    fleet.ok("apply", "-f", "-", stdin=SHED.format(root=root).replace("backyard", "attic"))
    long = WORK.replace("backyard", "attic").replace("name: chairs", "name: sleepers")
    long = long.replace('echo "sawing $TASK_ITEM"', f"touch {tmp_path}/begun; sleep 100000")
    fleet.ok("apply", "-f", "-", stdin=long)
    fleet.shell(f"until [ -e {tmp_path}/begun ]; do sleep 0.05; done")
    fleet.ok("delete", "job/sleepers")
    assert list(root.glob("boxes/*/box.json")) == []
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "command="], capture_output=True, text=True)
    assert not [line for line in listed.stdout.splitlines() if str(root) in line]


def test_it_is_loaded_by_nothing_that_does_not_use_it(fleet: Outside) -> None:
    shown = fleet.shell("python -X importtime -m fleetctl --help").talk
    assert "fleetctl.cli" in shown and "fleetctl_shed" not in shown
    assert "importlib.metadata" not in shown
    for words in ("get all", "get providers", "get jobs"):
        shown = fleet.shell(f"python -X importtime -m fleetctl {words}").talk
        assert "fleetctl.cli" in shown and "fleetctl_shed" not in shown


def test_where_it_is_not_installed_all_else_goes_on(fleet: Outside, tmp_path: Path) -> None:
    """Its stored object is shown, and other work runs, by a controller without the package."""
    home = tmp_path / "home"
    fleet.ok("apply", "-f", "-", stdin=SHED.format(root=tmp_path).replace("backyard", "cellar"))
    fleet.ok("down")
    shutil.copytree(fleet.home, home, symlinks=True)
    bare = Fleet(home)
    try:
        assert "cellar" in bare.ok("get", "providers")
        done = bare.ok("run", "--name", "elsewhere", "--", "echo", "well")
        assert "well" in done
        doctor = bare.run("doctor")
        assert "no installed package provides the type `shed`" in doctor.out
        refused = bare.run("apply", "-f", "-", stdin=WORK.replace("backyard", "cellar"))
        assert "no installed package provides the type `shed`" in refused.talk, refused
        assert "install the package that provides `shed`" in refused.talk
    finally:
        bare.close()
