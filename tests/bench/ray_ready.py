"""How soon two Ray nodes of an attempt are ready for its command, against Ray's own commands by
hand. Real Ray, in the environment that `make test-frameworks` makes, or of $FLEETCTL_TEST_RAY.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fleetctl.guest.nodes.ray import kill_session
from fleetctl.specs.blocks.nodes import NodeRange, Ray, with_nodes
from tests.bench.harness import Figure
from tests.contracts.local_worlds import LocalWorld, stop_supervisors
from tests.contracts.provider_worlds import script

ROUNDS = 3
GOAL = 1.3
LIMIT_S = 120.0
STORE_MIB = 100
BIN = os.environ.get("FLEETCTL_TEST_RAY") or str(Path(".frameworks/ray/bin").resolve())
COUNT = """
import sys, time
import ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
while sum(1 for node in ray.nodes() if node["Alive"]) < 2:
    time.sleep(0.05)
"""


def figures() -> list[Figure]:
    if not Path(BIN, "ray").exists():
        print("no Ray here: `make test-frameworks` installs it", file=sys.stderr)
        return []
    by_hand, ours = [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as place:
            by_hand.append(_by_hand(Path(place)))
        with tempfile.TemporaryDirectory() as place:
            ours.append(asyncio.run(_attempt(Path(place))))
    ratio = statistics.median(ours) / statistics.median(by_hand)
    texts = [", ".join(f"{one:.1f}" for one in took) for took in (ours, by_hand)]
    return [
        Figure(
            "from the start of an attempt of two nodes to its command, with Ray between them, "
            "against `ray start` of a head, of a worker, and two in `ray.nodes()`, by hand",
            f"{texts[0]} s against {texts[1]} s: {ratio:.2f} times",
            f"{GOAL} times",
            ratio <= GOAL,
        )
    ]


def _by_hand(place: Path) -> float:
    """Seconds. A worker whose head does not listen yet would wait for it a second at a time."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    begun_s = time.monotonic()
    nodes = [_node(place, "127.0.0.1", "--head", f"--port={port}", "--include-dashboard=false")]
    try:
        _listens(nodes[0], port)
        nodes.append(_node(place, "127.0.0.2", f"--address={address}"))
        command = [f"{BIN}/python3", "-c", COUNT, address]
        subprocess.run(command, env=_variables(place), cwd="/", check=True, timeout=LIMIT_S)
        return time.monotonic() - begun_s
    finally:
        for node in reversed(nodes):
            while kill_session(node.pid):
                time.sleep(0.05)


def _node(place: Path, address: str, *words: str) -> subprocess.Popen[bytes]:
    """The flags that an attempt's nodes have, too; in a session of its own."""
    command = [f"{BIN}/ray", "start", "--block", "--disable-usage-stats", *words]
    command += [f"--node-ip-address={address}", "--num-gpus=0", "--num-cpus=1"]
    command += [f"--object-store-memory={STORE_MIB * 2**20}", f"--temp-dir={place}"]
    command += ["--min-worker-port=0", "--max-worker-port=0"]
    null = subprocess.DEVNULL
    return subprocess.Popen(
        command, env=_variables(place), stdout=null, stderr=null, start_new_session=True
    )


def _variables(place: Path) -> dict[str, str]:
    return {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(place)}


def _listens(head: subprocess.Popen[bytes], port: int) -> None:
    until_s = time.monotonic() + LIMIT_S
    while time.monotonic() < until_s:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if head.poll() is not None:
            raise RuntimeError(f"`ray start --head` ended with {head.returncode}")
        time.sleep(0.02)
    raise RuntimeError(f"`ray start --head` did not listen within {LIMIT_S:.0f} s")


async def _attempt(place: Path) -> float:
    """Seconds from the provider's call to the first moment of the command."""
    world = LocalWorld(place)
    made = script("date +%s.%N", env={"PATH": f"{BIN}:/usr/bin:/bin"}, resources={"cpu": 1})
    ray = Ray.model_validate({"objectStoreMemory": f"{STORE_MIB}Mi"})
    template = with_nodes(made, NodeRange(min=2, max=2), None, ray)
    begun_s = time.time()
    try:
        ref = await world.start(template)
        seen = await world.ended(ref)
        if not seen.ok:
            raise RuntimeError(f"the attempt ended with {seen.reason}: {seen.message}")
        return float(await world.log(ref)) - begun_s
    finally:
        await world.close()
        stop_supervisors(place / "home")
