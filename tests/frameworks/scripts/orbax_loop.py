"""A loop with `latest_step()`; knows nothing of fleetctl but for a result."""

import json
import os
import sys

import numpy as np
import orbax.checkpoint as ocp
from crash import crash

directory = sys.argv[1]
with ocp.CheckpointManager(directory) as manager:
    latest = manager.latest_step()
    state = {"w": np.zeros(4), "step": 0}
    if latest is not None:
        state = manager.restore(latest, args=ocp.args.StandardRestore(state))
    begun = int(state["step"])
    for step in range(begun + 1, 21):
        crash(step - 1, f"{directory}/99")
        state = {"w": state["w"] + 1, "step": step}
        if step % 5 == 0:
            manager.save(step, args=ocp.args.StandardSave(state))
            manager.wait_until_finished()
with open(os.environ["FLEETCTL_RESULT"], "w") as file:
    json.dump({"resumed_from": begun, "steps": int(state["step"])}, file)
