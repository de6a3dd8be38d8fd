"""A step of 16 environments of two calls each, unchanged ones of specs/examples/rl-batched."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import fleetctl.guest.library
from fleetctl.common.tokens import gateway_token
from tests.bench.harness import Figure
from tests.docs.fleet import EXAMPLES
from tests.emulators.llm.server import Model
from tests.unit.gateway.test_process import living

ENVIRONMENTS, ANSWER_S = 16, 0.1
IDEAL_MS = 2 * ANSWER_S * 1000
MODELS = {"chat": "chat", "embed": "embed"}
# An episode has five steps, so that none begins anew while it is timed.
STEPS = """
import json, statistics, sys, time
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from rewriting import Rewriting

count, at_once, episodes, steps = map(int, sys.argv[1:])
each = [Rewriting] * count
envs = AsyncVectorEnv(each, max_concurrency=at_once) if at_once > 1 else SyncVectorEnv(each)
took_ms = []
for episode in range(episodes):
    envs.reset(seed=episode)
    each_ms = []
    for step in range(steps):
        begun_s = time.monotonic()
        envs.step(np.full(count, step))
        each_ms.append((time.monotonic() - begun_s) * 1000)
    took_ms.append(statistics.median(each_ms))
envs.close()
print(json.dumps(took_ms))
"""


def figures() -> list[Figure]:
    return asyncio.run(_figures())


async def _figures() -> list[Figure]:
    model = Model(slots=ENVIRONMENTS, answer_s=ANSWER_S, models=tuple(MODELS))
    with tempfile.TemporaryDirectory() as name:
        async with living(Path(name), model) as gateway:
            await gateway.declare([model], models=MODELS)
            token = gateway_token(gateway.key, "r1")
            by_gateway = {"FLEETCTL_LLM_URL": gateway.url, "OPENAI_API_KEY": token}
            direct = {"OPENAI_BASE_URL": f"{model.url}/v1"}
            all_ms = await _step_ms(by_gateway, at_once=ENVIRONMENTS)
            direct_ms = await _step_ms(direct, at_once=ENVIRONMENTS)
            eight_ms = await _step_ms(by_gateway, at_once=8)
            single_ms = await _step_ms(by_gateway, at_once=1, episodes=1, steps=2)
    single = Model(slots=1, answer_s=ANSWER_S, models=tuple(MODELS))
    await single.start()
    direct = {"OPENAI_BASE_URL": f"{single.url}/v1"}
    queued_ms = await _step_ms(direct, at_once=ENVIRONMENTS, episodes=1, steps=2)
    await single.stop()
    what = f"a step of {ENVIRONMENTS} environments, two calls of {ANSWER_S * 1000:.0f} ms each"
    goal, beside = f"{1.1 * IDEAL_MS:.0f} ms", "378 ms of 8 threads"
    return [
        Figure(f"{what}, all at once", f"{all_ms:.0f} ms", goal, all_ms <= 1.1 * IDEAL_MS),
        Figure("the same without a gateway", f"{direct_ms:.0f} ms", "", None),
        Figure("8 at once, as in the seed", f"{eight_ms:.0f} ms", beside, None),
        Figure("one after another", f"{single_ms:.0f} ms", "", None),
        Figure("all at once at a server with one slot", f"{queued_ms:.0f} ms", "", None),
    ]


async def _step_ms(
    way: dict[str, str], *, at_once: int, episodes: int = 4, steps: int = 5
) -> float:
    """The median of a step in the best of the episodes: others here only make it longer."""
    paths = (str(EXAMPLES / "rl-batched"), str(fleetctl.guest.library.__path__[0]))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths), **way}
    numbers = map(str, (ENVIRONMENTS, at_once, episodes, steps))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STEPS, *numbers), env=env, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    assert process.returncode == 0
    return float(min(json.loads(told)))
