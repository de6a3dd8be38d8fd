"""Asks `sweeps` 0.3.0, W&B's own library, and writes what it says: values alone. `make oracle` runs
it in an environment that has that library and nothing of ours.

python oracle.py DIRECTORY: writes DIRECTORY/{grids,verdicts}.jsonl and draws.json
"""

import json
import random
import re
import sys
import warnings
from collections import Counter
from pathlib import Path

warnings.simplefilter("ignore")
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import numpy  # noqa: E402
import yaml  # noqa: E402
from configurations import CONTINUOUS_MANY, DRAWS, GRIDS, VERDICTS  # noqa: E402
from sweeps import next_run  # noqa: E402
from sweeps.config import SweepConfig  # noqa: E402

DRAWN = 10_000
QUANTILES = 200
# W&B's service takes these for numbers, which PyYAML does not.
EXPONENT = re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+")


def shapes():
    for at, shape in enumerate(yaml.safe_load_all((HERE / "shapes.yaml").read_text())):
        yield f"shape {at + 1}", numbers(shape)


def numbers(value):
    if isinstance(value, str) and EXPONENT.fullmatch(value):
        return float(value)
    if isinstance(value, list):
        return [numbers(it) for it in value]
    if isinstance(value, dict):
        return {key: numbers(it) for key, it in value.items()}
    return value


def points(config):
    """All of a grid, in order. Asked with what was written: a checked one has lost its groups."""
    runs, found = [], []
    while (run := next_run(config, runs)) is not None:
        runs.append(run)
        found.append(plain(values(run.config)))
    return found


def values(config):
    return {name: it["value"] for name, it in config.items()}


def plain(value):
    if isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, list):
        return [plain(it) for it in value]
    if isinstance(value, dict):
        return {key: plain(it) for key, it in value.items()}
    return value


def is_taken(config):
    """Also that a search of it can begin: some mistakes are found only then."""
    try:
        SweepConfig(config)
        next_run(config, [])
    except Exception:  # of five sorts, one of them an accident
        return False
    return True


def draws():
    """Quantiles of what is continuous; how often each value came of the rest."""
    random.seed(1)
    numpy.random.seed(1)
    names = {f"p{at}": name for at, name in enumerate(DRAWS)}
    parameters = {key: DRAWS[name] for key, name in names.items()}
    checked = SweepConfig({"method": "random", "parameters": parameters})
    drawn = {name: [] for name in DRAWS}
    for _ in range(DRAWN):
        for key, value in plain(values(next_run(checked, []).config)).items():
            drawn[names[key]].append(value)
    found = {}
    for at, (name, sample) in enumerate(drawn.items()):
        if at < CONTINUOUS_MANY:
            sample.sort()
            steps = [DRAWN * (2 * step + 1) // (2 * QUANTILES) for step in range(QUANTILES)]
            found[name] = [float(f"{sample[it]:.6g}") for it in steps]
        else:
            rounded = (round(it, 9) if isinstance(it, float) else it for it in sample)
            counted = Counter(json.dumps(it + 0 if isinstance(it, float) else it) for it in rounded)
            found[name] = dict(sorted(counted.items()))
    return found


def main(directory):
    every = {**VERDICTS, **GRIDS, **dict(shapes())}
    with (directory / "verdicts.jsonl").open("w") as out:
        for name, config in every.items():
            print(json.dumps([name, is_taken(config)]), file=out)
    grids = {name: it for name, it in dict(shapes()).items() if it.get("method") == "grid"}
    with (directory / "grids.jsonl").open("w") as out:
        for name, config in {**GRIDS, **grids}.items():
            if is_taken(config):
                print(json.dumps([name, points(config)]), file=out)
    (directory / "draws.json").write_text(json.dumps(draws()).replace('], "', '],\n"') + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
