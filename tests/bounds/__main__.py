"""`python -m tests.bounds [EXTRA ...]`: an environment for each end of each range, its tests there.

At the oldest end all that fleetctl itself requires is the oldest as well, as `uv pip install
--resolution lowest-direct` has it. Environments are kept below .bounds, so that a second time is
quick. Not part of `make test`: it asks a registry for packages and takes minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[2]
PLACE = HERE / ".bounds"
UV = HERE / ".venv/bin/uv"
ENDS = ("lowest-direct", "highest")
# What runs the tests, in whatever versions go with the rest.
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "setuptools>=77", "wheel", "uv")


@dataclass(frozen=True, slots=True)
class ExtraBounds:
    """An extra whose ranges are tried. tests: patterns. beside: other packages that they import;
    package: whose version is printed, where it is not the extra's name.
    """

    extra: str
    tests: tuple[str, ...]
    beside: tuple[str, ...] = ()
    package: str = ""


EXTRAS = (
    ExtraBounds(
        "modal",
        (
            "tests/unit/providers/modal",
            "tests/contracts/test_provider_modal*.py",
            "tests/servers/test_modal_*.py",
            "tests/emulators/suite/test_modal_*.py",
        ),
    ),
    ExtraBounds(
        "daytona",
        (
            "tests/unit/providers/daytona",
            "tests/contracts/test_provider_daytona*.py",
            "tests/servers/test_daytona_*.py",
            "tests/emulators/suite/test_daytona_[!t]*.py",  # not of the toolbox
        ),
        beside=("modal",),
    ),
    ExtraBounds(
        "kubernetes",
        (
            "tests/unit/providers/kubernetes",
            "tests/contracts/test_provider_kubernetes.py",
            "tests/servers/test_kubernetes_*.py",
        ),
    ),
    ExtraBounds(
        "endpoints",
        (
            "tests/unit/gateway",
            "tests/unit/providers/endpoint",
            "tests/unit/engine/test_engine_endpoints.py",
        ),
        beside=("ollama", "openai", "anthropic"),
        package="aiohttp",
    ),
    ExtraBounds(
        "server", ("tests/api/test_api_*.py",), beside=("httpx", "trustme"), package="starlette"
    ),
    ExtraBounds("parquet", ("tests/unit/cli/test_cli_parquet*.py",), package="pyarrow"),
    ExtraBounds(
        "bayes",
        (
            "tests/unit/controllers/test_controllers_bayes.py",
            "tests/unit/engine/test_engine_bayes.py",
        ),
        beside=("optuna",),
        package="numpy",
    ),
    ExtraBounds("optuna", ("tests/unit/controllers/test_controllers_tpe.py",)),
    ExtraBounds("plot", ("tests/unit/cli/test_cli_plot_png.py",), package="matplotlib"),
    ExtraBounds(
        "policies",
        ("tests/unit/planning/test_planning_polic*.py",),
        package="common-expression-language",
    ),
    ExtraBounds("backup", ("tests/unit/stores/test_stores_copies.py",), package="fsspec"),
)


def main(words: list[str]) -> int:
    chosen = [it for it in EXTRAS if not words or it.extra in words]
    if words and len(chosen) < len(set(words)):
        print(f"error: the extras are {', '.join(it.extra for it in EXTRAS)}", file=sys.stderr)
        return 2
    lines, failed = [], False
    for bounds in chosen:
        for end in ENDS:
            python = _make_environment(bounds, end)
            code = _run_tests(bounds, python)
            failed |= code != 0
            message = "ok" if code == 0 else f"FAILED ({code})"
            lines.append(f"{bounds.extra} {_read_version(bounds, python)}  {end}: {message}")
    print("\n".join(lines))
    return int(failed)


def _make_environment(bounds: ExtraBounds, end: str) -> Path:
    place = PLACE / f"{bounds.extra}-{end}"
    python = place / "bin/python"
    if not python.exists():
        _uv("venv", "-q", "--python", sys.executable, str(place))
    install = ("pip", "install", "-q", "--python", str(python))
    _uv(*install, "--resolution", end, "--upgrade", "-e", f"{HERE}[{bounds.extra}]")
    frozen = place / "frozen.txt"
    found = _uv("pip", "freeze", "--python", str(python), "--exclude-editable")
    frozen.write_text(found)
    _uv(*install, "-c", str(frozen), *TOOLS, *bounds.beside)
    return python


def _run_tests(bounds: ExtraBounds, python: Path) -> int:
    files = [str(file) for one in bounds.tests for file in sorted(HERE.glob(one))]
    path = os.pathsep.join((str(python.parent), os.environ["PATH"]))
    argv = [str(python), "-m", "pytest", "-n", "2", "--dist", "loadgroup", *files]
    return subprocess.run(argv, cwd=HERE, check=False, env={**os.environ, "PATH": path}).returncode


def _read_version(bounds: ExtraBounds, python: Path) -> str:
    package = bounds.package or bounds.extra
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _uv(*words: str) -> str:
    done = subprocess.run([UV, *words], check=False, capture_output=True, text=True, cwd=HERE)
    if done.returncode:
        raise SystemExit(f"uv {' '.join(words)}:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
