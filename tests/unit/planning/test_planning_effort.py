"""What a plan costs beside what is over, in function calls, which are the same on every machine."""

from __future__ import annotations

import json
from pathlib import Path

from fleetctl.apply.local_proposal import estimate_proposal
from fleetctl.manifest.files.documents import Document
from fleetctl.stores.read.read_only import open_readonly
from tests.bench import manyobjects
from tests.unit.engine.test_engine_effort import Calls

JOB = {
    "apiVersion": "fleetctl.dev/v1alpha1",
    "kind": "BatchJob",
    "metadata": {"name": "fresh"},
    "spec": {"completions": 10, "template": {"python": "SUBMIT(n=1)"}},
}


def test_a_plan_costs_the_same_beside_a_hundred_finished_objects(tmp_path: Path) -> None:
    documents, spent = [Document("fresh.yaml", json.dumps(JOB), str(tmp_path))], []
    for count in (1, 1, 100):  # the first loads what is loaded once
        home = tmp_path / f"home-{len(spent)}"
        manyobjects.build(home, count, runs=1)
        with open_readonly(home) as stored, Calls() as calls:
            _, found = estimate_proposal(home, stored, documents, {})
        assert [it.action for it in found.objects] == ["create"]
        spent.append(calls.count)
    assert spent[2] <= spent[1] + 50  # to read one takes several, twice a hundred of them
