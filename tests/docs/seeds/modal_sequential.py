from fleetctl import ModalInterpreter

with ModalInterpreter(timeout=300) as interp:
    for i in range(5):
        result = interp.execute(f"import math; SUBMIT(task={i}, value=math.factorial({i + 10}))")
        print(f"Task {result.task}: {result.value}")
