"""The end of a first attempt at step 12: by a kill, perhaps in a save, or told to end."""

import os
import signal
import time


def crash(step, unfinished):
    """unfinished: what a save has made before anything is in it."""
    if os.environ["FLEETCTL_ATTEMPT"] != "1" or step != 12:
        return
    if os.environ["CRASH"] == "TERM":
        print("at step 12", flush=True)
        while True:
            time.sleep(1)
    if os.environ["CRASH"] == "saving":
        if unfinished.endswith(".ckpt"):
            open(unfinished, "w").close()
        else:
            os.makedirs(unfinished)
    os.kill(os.getpid(), signal.SIGKILL)
