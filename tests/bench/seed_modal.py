"""The seeds' way to run a batch on Modal: a pool of threads around the blocking SDK, where each
task looks up the app, makes a sandbox, talks to a driver in it over JSON lines, and ends it.

`python -m tests.bench.seed_modal TASKS THREADS CODE` prints the seconds that it took, without the
import of the SDK and the first connection. The environment says where Modal is.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import modal

APP = "seeds-loop"
DRIVER = """
import json, sys
given = {"__name__": "__main__"}
final = {}
given["SUBMIT"] = lambda **fields: final.update(fields)
for line in sys.stdin:
    final.clear()
    exec(json.loads(line)["code"], given)
    print(json.dumps({"final": final}), flush=True)
"""


def one(code: str, image: modal.Image) -> object:
    """One task's result."""
    app = modal.App.lookup(APP, create_if_missing=True)
    sandbox = modal.Sandbox.create(app=app, image=image, timeout=600)
    try:
        driver = sandbox.exec("python", "-u", "-c", DRIVER, bufsize=1, timeout=600)
        driver.stdin.write(json.dumps({"code": code}) + "\n")
        driver.stdin.drain()
        return json.loads(next(iter(driver.stdout)))["final"]
    finally:
        sandbox.terminate()


def main(tasks: int, threads: int, code: str) -> None:
    image = modal.Image.debian_slim()
    one(code, image)
    begun_s = time.perf_counter()
    with ThreadPoolExecutor(max_workers=threads) as pool:
        results = list(pool.map(lambda _: one(code, image), range(tasks)))
    print(time.perf_counter() - begun_s)
    assert results == [results[0]] * tasks, results


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
