"""A stand-in for a trainer: each step asks every server that it was told of, and counts where all
have answered. It ends with success once the file `finish` is there.
"""

import json
import os
import time
import urllib.request
from pathlib import Path

shared = Path("/shared") if Path("/shared").exists() else Path(os.environ["FLEETCTL_VOLUME_SHARED"])


def note(name: str, text: str) -> None:
    with (shared / name).open("a") as file:
        file.write(text + "\n")


def ask(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/", timeout=10) as answer:
        return str(answer.read().decode())


note("begun", f"trainer 0 {os.environ['FLEETCTL_ATTEMPT']}")
servers = os.environ["FLEETCTL_GROUP_ROLLOUT_ADDRESSES"].splitlines()
answers: list[str] = []
while not (shared / "finish").exists() or not answers:
    try:
        answers = [ask(it) for it in servers]
        note("steps", " ".join(answers))
    except OSError as error:  # a server begins, or begins again
        print(f"not all answered: {error}", flush=True)
    time.sleep(0.05)
Path(os.environ["FLEETCTL_RESULT"]).write_text(json.dumps({"servers": answers}))
