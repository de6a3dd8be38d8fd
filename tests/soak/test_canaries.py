"""Values of secrets in no screen: a task that prints, raises and reports its own secret, a notifier
whose address is one, and every verb that reads, on this machine. What masking cannot do is said in
SECURITY.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.stores.read.query import VIEWS
from tests.docs.fleet import Fleet
from tests.inside import PYTHON

VALUE = "canary-5f2d9c-of-the-task"
HOOK = "canary-77ab31-of-the-hook"

LEAKS = """
import json, os, sys
value = os.environ["TOKEN"]
print("printed", value, flush=True)
print("to stderr", value, file=sys.stderr, flush=True)
with open(os.environ["FLEETCTL_RESULT"], "w") as file:
    json.dump({"token": value, "fails": os.environ["TASK_FAILS"]}, file)
if os.environ["TASK_FAILS"] == "yes":
    raise RuntimeError(f"refused with {value}")
"""

MANIFESTS = [
    {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "Secret",
        "metadata": {"name": "token"},
        "spec": {"fromEnv": ["TOKEN"]},
    },
    {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "Secret",
        "metadata": {"name": "hook"},
        "spec": {"fromEnv": ["WEBHOOK_URL"]},
    },
    {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "BatchJob",
        "metadata": {"name": "leaks"},
        "spec": {
            "tasks": {"items": [{"fails": "no"}, {"fails": "yes"}]},
            "placement": {"provider": "local"},
            "notify": [{"when": ["Failed"], "webhook": {"secret": "hook"}}],
            "template": {"command": [PYTHON, "-c", LEAKS], "secrets": ["token"]},
        },
    },
]
READS = [
    *(["get", "all", "-o", form] for form in ("table", "wide", "yaml", "json", "csv")),
    *(["get", what, "job/leaks", "-o", "json"] for what in ("tasks", "attempts", "artifacts")),
    *(["get", "notices", "-o", form] for form in ("table", "wide", "json")),
    *(["describe", key] for key in ("job/leaks", "secret/token", "secret/hook")),
    ["events"],
    ["events", "-o", "json"],
    ["events", "job/leaks"],
    ["logs", "job/leaks"],
    ["results", "job/leaks", "-o", "json"],
    ["results", "job/leaks", "-o", "csv"],
    ["cost"],
    ["graph"],
    ["status"],
    *(["query", f"select * from {view}", "-o", "json"] for view in VIEWS),
]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    # Nobody listens there: that a delivery failed names the sink, too.
    values = {"TOKEN": VALUE, "WEBHOOK_URL": f"http://127.0.0.1:9/{HOOK}"}
    made = Fleet(tmp_path / "home", values)
    yield made
    made.close()


def test_no_screen_and_no_file_has_the_value_of_a_secret(fleet: Fleet) -> None:
    fleet.ok("apply", "-f", "-", stdin="---\n".join(json.dumps(it) + "\n" for it in MANIFESTS))
    assert fleet.run("wait", "job/leaks", "--timeout", "600s").code != 0
    while not fleet.json("get", "notices"):
        pass  # each look is a process of its own

    screens = {" ".join(words): fleet.ok(*words) for words in READS}
    assert "printed ***" in screens["logs job/leaks"]
    assert "refused with ***" in screens["describe job/leaks"]
    assert "leaks" in screens["get notices -o table"]
    shown = [words for words, text in screens.items() if VALUE in text or HOOK in text]
    assert shown == []

    work = fleet.home / "local" / "jobs"  # has what the task wrote itself, until it is removed
    files = [path for path in fleet.home.rglob("*") if path.is_file() and work not in path.parents]
    kept = [str(path.relative_to(fleet.home)) for path in files if _has_canary(path.read_bytes())]
    assert len(files) > 5 and kept == []


def _has_canary(data: bytes) -> bool:
    return VALUE.encode() in data or HOOK.encode() in data
