"""`python -m tests.nearest` prints the files of tests that `make check` runs: the nearest ones to
the change, until BUDGET_S of CPU is spent.

The change is every file that git shows as different from where this branch left the main one, or
from SINCE. Distance 0 are the files of tests that changed and those that import a changed module;
then come those that import a module which imports a changed one, and so on, by the import graph of
the product. At one distance the cheapest come first, by the seconds in COSTS; files that import no
such module come last, and only until FAR_BUDGET_S are spent. Tests of other rings than NEAR need
emulators or run the commands of pages: a file of these is taken only where it has changed itself.

The graph has no modules that are imported by name at run time, and no programs that a test starts:
`make test` runs everything.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
COSTS = ROOT / "tests/costs.json"  # as `python -m tests.costs --write` leaves it
BUDGET_S = 30.0  # of CPU
# Share of the budget for files which nothing leads to: a look at the whole where little changed.
FAR_BUDGET_S = 6.0
UNKNOWN_S, UNKNOWN_FAR_S = 1.0, 10.0  # CPU of a file without a record, and of one of another ring
NEAR = ("tests/unit/", "tests/properties/")
ITSELF, FAR = -1, 1_000  # distances of a changed file of tests, and of one that nothing leads to
BASES = ("@{upstream}", "origin/main", "main")
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]+)|import[ \t]+([\w.]+))", re.M
)


def choose_files(changed: Iterable[str], *, budget_s: float = BUDGET_S) -> list[str]:
    """Returns files of tests, the nearest first; these and `changed` are paths from the root."""
    distances = rank_files(frozenset(changed))
    recorded = json.loads(COSTS.read_text("utf-8"))
    costs = {file: cost["cpu_s"] for file, cost in recorded.items()}
    for file in distances:
        costs.setdefault(file, UNKNOWN_S if file.startswith(NEAR) else UNKNOWN_FAR_S)
    chosen, spent_s = [], 0.0
    for file in sorted(distances, key=lambda it: (distances[it], costs[it], it)):
        limit_s = budget_s if distances[file] < FAR else min(budget_s, FAR_BUDGET_S)
        if spent_s + costs[file] <= limit_s:
            chosen.append(file)
            spent_s += costs[file]
    return chosen


def rank_files(changed: frozenset[str]) -> dict[str, int]:
    """Returns the distances of the files of tests that may be run."""
    modules = rank_modules(find_modules(changed))
    distances = {}
    for file in list_tests():
        if file in changed:
            distances[file] = ITSELF
        elif file.startswith(NEAR):
            distances[file] = _measure_distance(file, changed, modules)
    return distances


def _measure_distance(file: str, changed: frozenset[str], modules: Mapping[str, int]) -> int:
    helpers, imported = read_helpers(file)
    if not changed.isdisjoint(helpers):
        return 0
    own = min((modules[it] for it in read_imports(file) if it in modules), default=FAR)
    # Many files share a helper, so that what it imports says less of each.
    helped = min((modules[it] for it in imported if it in modules), default=FAR)
    return min(2 * own, 2 * helped + 1, FAR)


def find_modules(changed: Iterable[str]) -> frozenset[str]:
    """Returns modules of the product; a file that is no module stands for those beside it."""
    known = _load_graph().modules
    found = set()
    for path in changed:
        inside = path if path.startswith("fleetctl/") else f"fleetctl/{path}"
        name = inside.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if name in known:
            found.add(name)
            continue
        package = inside.rpartition("/")[0].replace("/", ".")
        while package.count(".") and package not in known:
            package = package.rpartition(".")[0]
        if package.count(".") and not path.endswith(".py"):
            found |= {it for it in known if it.rpartition(".")[0] == package}
    return frozenset(found)


def rank_modules(changed: frozenset[str]) -> dict[str, int]:
    """Returns how many imports lead from each module to a changed one, 0 for those themselves."""
    graph = _load_graph()
    ranks: dict[str, int] = {}
    layer, distance = set(changed), 0
    while layer:
        ranks |= dict.fromkeys(layer, distance)
        importers = (graph.find_modules_that_directly_import(it) for it in layer)
        layer, distance = set().union(*importers) - ranks.keys(), distance + 1
    return ranks


@cache
def _load_graph() -> grimp.ImportGraph:
    """Returns the imports of the product."""
    return grimp.build_graph("fleetctl", cache_dir=None)  # `lint-imports` may write one


@cache
def list_tests() -> tuple[str, ...]:
    found = (it.relative_to(ROOT) for it in Path(__file__).parent.rglob("test_*.py"))
    return tuple(sorted(map(str, found)))


@cache
def read_helpers(file: str) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the modules below tests that a file leads to, as paths, and all that they import."""
    paths, imported, todo = set[str](), set[str](), [file]
    while todo:
        for name in read_imports(todo.pop()):
            for path in (f"{name.replace('.', '/')}{end}" for end in (".py", "/__init__.py")):
                is_helper = name.startswith("tests.") and path not in paths
                if is_helper and (ROOT / path).is_file():
                    paths.add(path)
                    imported |= read_imports(path)
                    todo.append(path)
    return frozenset(paths), frozenset(imported)


@cache
def read_imports(path: str) -> frozenset[str]:
    """Returns all that is imported anywhere in a file, as names that may or may not be modules."""
    found = set()
    for package, names, module in _IMPORT.findall((ROOT / path).read_text("utf-8")):
        found.add(package or module)
        found |= {f"{package}.{it}" for it in re.findall(r"\w+", names)}
    return frozenset(found)


def list_changes(since: str | None = None) -> frozenset[str]:
    """Returns the files that differ from the commit at which HEAD and `since` parted, and new ones.

    None of them where there is no git or no repository.
    """
    if shutil.which("git") is None:
        return frozenset()
    parted = (_run_git("merge-base", "HEAD", it) for it in ((since,) if since else BASES))
    base = next((it[0] for it in parted if it), "HEAD")
    changed = _run_git("diff", "--name-only", "-z", base)
    return frozenset([*changed, *_run_git("ls-files", "--others", "--exclude-standard", "-z")])


def _run_git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return [it for it in re.split("[\0\n]", done.stdout) if it] if done.returncode == 0 else []


def main() -> None:
    changed = list_changes(os.environ.get("SINCE"))
    chosen = choose_files(changed)
    print(*chosen, sep="\n")
    ran = f"{len(chosen)} of {len(list_tests())} files of tests, the nearest first"
    print(f"{len(changed)} files changed: {ran}", file=sys.stderr)
    if left := sorted(changed.intersection(list_tests()).difference(chosen)):
        print(f"too long for this, though changed: {' '.join(left)}", file=sys.stderr)


if __name__ == "__main__":
    main()
