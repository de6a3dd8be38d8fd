from fleetctl import DaytonaInterpreter

interp = DaytonaInterpreter(
    repo_url="https://github.com/your-org/your-repo",
    timeout=300,
)
interp.start()
try:
    for i in range(5):
        result = interp.execute(f"import math; SUBMIT(task={i}, value=math.factorial({i + 10}))")
        print(f"Task {result.task}: {result.value}")
finally:
    interp.shutdown()
