"""The seeds' way to run a batch on Daytona: a pool of threads around the blocking SDK, where each
task makes a sandbox, runs its code in it and deletes it.

`python -m tests.bench.seed_daytona TASKS THREADS CODE` prints the seconds that it took, without the
import of the SDK and the first connection. The environment says where Daytona is.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from daytona import CreateSandboxFromSnapshotParams, Daytona

# What hands the result in; the code is the task's own.
FRAME = """import json
final = {{}}
SUBMIT = lambda **fields: final.update(fields)
{code}
print(json.dumps(final))
"""


def one(daytona: Daytona, code: str) -> object:
    """One task's result."""
    sandbox = daytona.create(CreateSandboxFromSnapshotParams(language="python"))
    try:
        answer = sandbox.process.code_run(FRAME.format(code=code))
        return json.loads(answer.result)
    finally:
        sandbox.delete()


def main(tasks: int, threads: int, code: str) -> None:
    daytona = Daytona()
    one(daytona, code)
    begun_s = time.perf_counter()
    with ThreadPoolExecutor(max_workers=threads) as pool:
        results = list(pool.map(lambda _: one(daytona, code), range(tasks)))
    print(time.perf_counter() - begun_s)
    assert results == [results[0]] * tasks, results


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
