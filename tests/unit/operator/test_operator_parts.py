"""The fence around the store, the answers to probes, and manifests written for a cluster."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
import yaml

from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource
from fleetctl.manifest.cluster import for_cluster, truth_keys_in
from fleetctl.manifest.files.documents import read_documents
from fleetctl.manifest.loader import load_manifests
from fleetctl.operator.metrics import ProbePage, answer_probes, ready_page
from fleetctl.operator.mirror.entries import MirrorEntry
from fleetctl.operator.operator_process import LeaseLost, fence_store
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.sqlite.store import open_store

ROOT = Path(__file__).parents[3]
ROW = Resource("u", "Volume", "x", 1, 0, "{}", "", {}, {}, 0.0)


def test_without_the_lease_nothing_becomes_durable(tmp_path: Path) -> None:
    leads = [True]
    opened = open_store(tmp_path / "home", SystemClock())
    store = fence_store(opened, lambda: leads[0])
    with store.transaction():
        store.resources.put(ROW, expected_version=None)
    with pytest.raises(LeaseLost), store.transaction():
        store.resources.delete("u")
        leads[0] = False  # while a pass takes its time
    assert store.resources.of("u") is not None
    assert store.store_id == opened.store_id
    opened.close()


def test_an_event_is_new_unless_it_shows_the_servers_last_reply() -> None:
    """While a resource is worked on, its events may come before the reply to our own write."""
    entry = MirrorEntry(KINDS["BatchJob"], ("default", "x"))
    before, ours, after = ({"metadata": {"resourceVersion": it}} for it in ("1", "2", "3"))
    assert not entry.knows(before)
    entry.take_reply(ours)
    assert entry.knows(ours)
    assert entry.newest(before) is ours
    assert not entry.knows(after)
    assert entry.newest(after) is after
    assert not entry.knows(None)  # it is gone


def test_probes_are_answered_and_nothing_else() -> None:
    ready = [False]

    async def asked(port: int, text: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(text.encode())
        writer.write_eof()
        answer = (await reader.read()).decode()
        writer.close()
        return answer.partition("\r\n")[0]

    async def ask_all() -> list[str]:
        pages = {
            "/healthz": lambda: ProbePage(200, "ok"),
            "/readyz": lambda: ready_page({} if ready[0] else {"volumes": "missing"}),
        }
        server = await answer_probes(0, pages)
        # Of any free port each family gets one of its own.
        (port,) = [it.getsockname()[1] for it in server.sockets if it.family == socket.AF_INET]
        told = [await asked(port, f"GET {it} HTTP/1.1\r\n\r\n") for it in ("/healthz", "/readyz")]
        ready[0] = True
        told.append(await asked(port, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"))
        told.append(await asked(port, "GET /metrics HTTP/1.1\r\n\r\n"))
        told.append(await asked(port, "what"))
        server.close()
        return told

    codes = [line.split(" ")[1] if line else "" for line in asyncio.run(ask_all())]
    assert codes == ["200", "503", "200", "404", ""]


@pytest.mark.parametrize("name", ["hello", "sweep", "training", "services"])
def test_a_manifest_for_a_cluster_has_another_namespace_and_is_the_same(name: str) -> None:
    path = ROOT / f"docs/examples/{name}.yaml"
    (document,) = read_documents([str(path)])
    made, _ = for_cluster(document, "team")
    written = [it for it in yaml.safe_load_all(path.read_text()) if it]
    for one in made:
        one["metadata"].pop("namespace", None)
    assert [it["kind"] for it in made] == [it["kind"] for it in written]
    assert [it["metadata"] for it in made] == [it["metadata"] for it in written]


def test_what_a_manifest_names_in_a_file_is_written_into_it(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    path = tmp_path / "job.yaml"
    path.write_text(
        "apiVersion: fleetctl.dev/v1alpha1\nkind: BatchJob\nmetadata: {name: x}\n"
        "spec:\n  tasks: {fromFile: rows.jsonl}\n"
        "  template: {python: pass, source: {path: .}}\n"
    )
    (document,) = read_documents([str(path)])
    (made,), notes = for_cluster(document, "team")
    assert made["spec"]["tasks"] == {"items": [{"a": 1}, {"a": 2}]}
    assert made["metadata"] == {"name": "x", "namespace": "team"}
    assert notes == [
        "batchjob/x: spec.template.source.path names a file, which a cluster does not have; use"
        " `source.git`"
    ]
    load_manifests([document])


def test_keys_that_kubectl_changed_are_found_in_each_mapping_of_an_author() -> None:
    spec = {
        "tasks": {"matrix": {"true": [3]}, "items": [{"a": 1}, {"False": 2}]},
        "template": {"env": {"TRUE": "x", "A": "true"}, "kubernetes": {"podLabels": {"on": "b"}}},
    }
    assert sorted(truth_keys_in(spec)) == [
        "spec.tasks.items[1].False",
        "spec.tasks.matrix.true",
        "spec.template.env.TRUE",
    ]
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"a": deep}
    assert list(truth_keys_in(deep)) == []
