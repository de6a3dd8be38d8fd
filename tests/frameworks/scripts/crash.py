"""The end of a first attempt at step 12: by a signal, perhaps in the middle of a save."""

import os
import signal


def crash(step, unfinished):
    """unfinished: what a save has made before anything is in it."""
    if os.environ["FLEETCTL_ATTEMPT"] != "1" or step != 12:
        return
    if os.environ["CRASH"] == "saving":
        if unfinished.endswith(".ckpt"):
            open(unfinished, "w").close()
        else:
            os.makedirs(unfinished)
    number = signal.SIGTERM if os.environ["CRASH"] == "TERM" else signal.SIGKILL
    os.kill(os.getpid(), number)
