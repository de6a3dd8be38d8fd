"""A stand-in for a trainer: each step asks every server that it was told of, and counts where all
have answered. It ends with success once the file `finish` is there, or once the servers' attempt is
the one in UNTIL_ATTEMPT.
"""

import json
import os
import time
import urllib.request
from pathlib import Path

UNTIL = int(os.environ.get("UNTIL_ATTEMPT", "0"))
shared = Path(os.environ.get("FLEETCTL_VOLUME_SHARED", "."))


def note(name: str, text: str) -> None:
    with (shared / name).open("a") as file:
        file.write(text + "\n")


def ask(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/", timeout=10) as answer:
        return str(answer.read().decode())


def is_over(answers: list) -> bool:
    if UNTIL:
        return bool(answers) and all(int(it.split("/")[1]) >= UNTIL for it in answers)
    return bool(answers) and (shared / "finish").exists()


note("begun", f"trainer 0 {os.environ['FLEETCTL_ATTEMPT']}")
print(f"trainer 0 begins as attempt {os.environ['FLEETCTL_ATTEMPT']}", flush=True)
servers = os.environ["FLEETCTL_GROUP_ROLLOUT_ADDRESSES"].splitlines()
answers: list = []
while not is_over(answers):
    try:
        answers = [ask(it) for it in servers]
        note("steps", " ".join(answers))
        print("answered", *answers, flush=True)
    except OSError as error:  # a server begins, or begins again
        print(f"not all answered: {error}", flush=True)
    time.sleep(0.05)
result = {"servers": [it.split("/")[0] for it in answers], "addresses": servers}
Path(os.environ["FLEETCTL_RESULT"]).write_text(json.dumps(result))
