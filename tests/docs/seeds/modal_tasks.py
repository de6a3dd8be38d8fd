from concurrent.futures import ThreadPoolExecutor, as_completed

from fleetctl import ModalInterpreter

tasks = [
    "result = sum(range(1000)); SUBMIT(total=result)",
    "import math; SUBMIT(pi_approx=math.pi)",
    "SUBMIT(greeting='Hello from sandbox')",
]


def run_task(code):
    with ModalInterpreter(timeout=120) as interp:
        return interp.execute(code)


with ThreadPoolExecutor(max_workers=4) as pool:
    futures = {pool.submit(run_task, t): i for i, t in enumerate(tasks)}
    for future in as_completed(futures):
        idx = futures[future]
        result = future.result()
        print(f"Task {idx}: {result}")
