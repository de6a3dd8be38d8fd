"""A real Prometheus scrapes a served fleet, with the alert rules and the queries of the Grafana
dashboard in deploy/.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.served import END_S, WAIT_S, ServedFleet, job, until

HERE = Path(__file__).parent
DEPLOY = HERE.parents[1] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yaml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "fleetctl.json").read_bytes())
REFERENCE = (HERE.parents[1] / "docs" / "reference" / "server-metrics.md").read_text("utf-8")
COLUMNS = 24  # of a Grafana dashboard
PORTS = range(20_000, 32_000)  # below those that the kernel gives to others
OWN = {"process_resident_memory_bytes"}

pytestmark = [pytest.mark.needs("prometheus", "promtool")]


def promtool(*words: str) -> str:
    played = subprocess.run(
        ["promtool", *words], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert played.returncode == 0, played.stdout + played.stderr
    return played.stdout


def test_promtool_accepts_the_rules() -> None:
    assert "10 rules found" in promtool("check", "rules", str(RULES))


def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    text = (HERE / "prometheus_rules.yaml").read_text("utf-8").replace("RULES", str(RULES))
    file = tmp_path / "tests.yaml"
    file.write_text(text, "utf-8")
    assert "SUCCESS" in promtool("test", "rules", str(file))


@pytest.fixture(scope="module")
def prometheus(
    served: ServedFleet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """A Prometheus that scrapes the fleet, as docs/how-to/share-one-server.md configures it."""
    home = tmp_path_factory.mktemp("prometheus")
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": "fleetctl",
                "static_configs": [{"targets": [served.url.removeprefix("http://")]}],
            }
        ],
    }
    file = home / "prometheus.yaml"
    file.write_text(json.dumps(config), "utf-8")
    address = f"127.0.0.1:{_find_free_port()}"
    words = [
        "prometheus",
        f"--config.file={file}",
        f"--storage.tsdb.path={home / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (
        (home / "log").open("wb") as log,
        subprocess.Popen(words, stderr=log, stdout=log) as process,
        httpx.Client(
            base_url=f"http://{address}/api/v1", timeout=WAIT_S, trust_env=False
        ) as client,
    ):
        try:
            until(lambda: _is_up(client), "the fleet as a target of Prometheus")
            yield client
        finally:
            process.terminate()
            process.wait(END_S)


def _find_free_port() -> int:
    start = os.getpid() % len(PORTS)
    for port in [*PORTS[start:], *PORTS[:start]]:
        with socket.socket() as door:
            if door.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError("no port is free")


def _is_up(client: httpx.Client) -> bool:
    try:
        ready = client.get("/query", params={"query": "1"}).status_code == 200
    except httpx.TransportError:
        return False
    return ready and bool(_query(client, 'up{job="fleetctl"} == 1'))


def _query(client: httpx.Client, expression: str) -> list[dict[str, Any]]:
    answer = client.get("/query", params={"query": expression}).json()
    assert answer["status"] == "success", (expression, answer)
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


BUDGET = """
apiVersion: fleetctl.dev/v1alpha1
kind: Budget
metadata: {name: scraped}
spec: {maxCost: 100, selector: {team: none}}
"""


def test_every_panel_of_the_dashboard_shows_a_fleet_that_works(
    served: ServedFleet, prometheus: httpx.Client
) -> None:
    sleeps = "import time; time.sleep(600)"
    texts = (
        job("ends", tasks=3),
        job("runs", sleeps, tasks=3, parallelism=1),
        job("waits", tasks=2, suspend=True),
        BUDGET,
    )
    assert served.post("apply", {"manifest": "\n---\n".join(texts)}).status_code == 200

    def empty() -> list[str]:
        return [
            panel["title"]
            for panel in DASHBOARD["panels"]
            for target in panel["targets"]
            if not _query(prometheus, _fill_variables(target["expr"]))
        ]

    until(lambda: not empty(), f"a value in each of {[it['title'] for it in DASHBOARD['panels']]}")
    served.ok("delete", "job/runs", "job/waits", "--yes")


def test_the_reference_names_each_metric_of_the_dashboard() -> None:
    targets = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    names = {name for it in targets for name in re.findall(r"\b(?:fleetctl|process)_\w+", it)}
    known = {re.sub(r"_bucket$", "", name) for name in names} - OWN
    assert len(known) > 10
    assert [name for name in sorted(known) if f"`{name}`" not in REFERENCE] == []


def _fill_variables(expression: str) -> str:
    """Returns the expression as Grafana sends it, of all servers and namespaces."""
    filled = expression.replace("$__rate_interval", "1m")
    return re.sub(r"\$(?:instance|namespace)\b", ".*", filled)


def test_panels_have_a_place_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert max(x for x, _ in cells) < COLUMNS
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_prometheus_evaluates_every_rule(prometheus: httpx.Client) -> None:
    def rules() -> list[dict[str, Any]]:
        groups = prometheus.get("/rules").json()["data"]["groups"]
        found = [rule for group in groups for rule in group["rules"]]
        return found if found and all(rule["health"] != "unknown" for rule in found) else []

    found = until(rules, "an evaluation of each rule")
    assert [(rule["name"], rule.get("lastError")) for rule in found if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in found if rule["state"] == "firing"] == []


def test_a_fleet_without_its_controller_raises_the_alert(
    served: ServedFleet, prometheus: httpx.Client
) -> None:
    manifest = job("goes-on", "import time; time.sleep(600)")
    assert served.post("apply", {"manifest": manifest}).status_code == 200
    until(lambda: served.get("batchjobs", phase="Running")["items"])
    served.ok("down")
    pending = 'ALERTS{alertname="FleetctlControllerDown", alertstate="pending"}'
    until(lambda: _query(prometheus, pending), "the alert")
    served.ok("delete", "job/goes-on", "--yes")
