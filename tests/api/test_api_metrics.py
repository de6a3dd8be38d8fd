"""Metrics under the names that the reference promises, and probes."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.api.served import ServedFleet, job, until

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "server-metrics.md"


def metrics(served: ServedFleet) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    with served.client() as client:
        answer = client.get("/metrics")
    assert answer.status_code == 200
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_metrics_count_what_is_stored(served: ServedFleet) -> None:
    texts = (job("ends", tasks=3), job("waits", tasks=4, suspend=True))
    assert served.post("apply", {"manifest": "\n---\n".join(texts)}).status_code == 200
    until(lambda: served.get("batchjobs", phase="Succeeded")["items"])
    found = metrics(served)
    where = (("kind", "BatchJob"), ("namespace", "default"))
    assert found["fleetctl_objects"][(*where, ("phase", "Succeeded"))] == 1
    assert found["fleetctl_objects"][(*where, ("phase", "Suspended"))] == 1
    assert found["fleetctl_runs"][(("provider", "local"), ("state", "Succeeded"))] == 3
    assert found["fleetctl_queue_depth"][(("namespace", "default"), ("queue", ""))] == 4
    assert found["fleetctl_controller_up"][()] == 1
    assert found["fleetctl_ticks_total"][()] > 0
    assert found["fleetctl_provider_calls_total"][(("provider", "local"),)] > 0
    assert found["fleetctl_change_duration_seconds_count"][(("verb", "apply"),)] == 1
    served.ok("down")
    assert metrics(served)["fleetctl_controller_up"][()] == 0


def test_the_reference_names_every_metric(served: ServedFleet) -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    with served.client() as client:
        families = list(text_string_to_metric_families(client.get("/metrics").text))
    names = {it.name for it in families if it.name.startswith("fleetctl_")}
    assert len(names) > 10
    assert [it for it in sorted(names) if f"`{it}" not in text] == []


def test_probes_answer_without_a_token(served: ServedFleet) -> None:
    with served.client() as client:
        for path in ("/healthz", "/readyz"):
            answer = client.get(path, headers={"host": "10.0.0.1"})
            assert (answer.status_code, answer.text) == (200, "ok\n")
