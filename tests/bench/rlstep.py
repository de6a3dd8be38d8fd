"""A step of 16 environments of two calls each, by the trainer of specs/examples/rl-batched."""

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
STEPS = 5  # of an episode, so that none begins anew meanwhile
MODELS = {"chat": "chat", "embed": "embed"}


def figures() -> list[Figure]:
    return asyncio.run(_figures())


async def _figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        model = Model(slots=ENVIRONMENTS, answer_s=ANSWER_S, models=tuple(MODELS))
        async with living(directory, model) as gateway:
            await gateway.declare([model], models=MODELS)
            by_gateway = {
                "FLEETCTL_LLM_URL": gateway.url,
                "OPENAI_API_KEY": gateway_token(gateway.key, "r1"),
            }
            direct = {"OPENAI_BASE_URL": f"{model.url}/v1"}
            all_ms, single_ms = await _timed(directory, by_gateway, at_once=ENVIRONMENTS)
            direct_ms, _ = await _timed(directory, direct, at_once=ENVIRONMENTS)
            eight_ms, _ = await _timed(directory, by_gateway, at_once=8)
    what = f"a step of {ENVIRONMENTS} environments, two calls of {ANSWER_S * 1000:.0f} ms each"
    goal, beside = f"{1.1 * IDEAL_MS:.0f} ms", "378 ms of 8 threads"
    return [
        Figure(f"{what}, all at once", f"{all_ms:.0f} ms", goal, all_ms <= 1.1 * IDEAL_MS),
        Figure("the same without a gateway", f"{direct_ms:.0f} ms", "", None),
        Figure("8 at once, as in the seed", f"{eight_ms:.0f} ms", beside, None),
        Figure("one after another", f"{single_ms:.0f} ms", "", None),
    ]


async def _timed(directory: Path, way: dict[str, str], *, at_once: int) -> tuple[float, float]:
    """Milliseconds of a step, with so many at once and one after another."""
    result = directory / f"{len(list(directory.iterdir()))}.json"
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(fleetctl.guest.library.__path__[0]),
        "FLEETCTL_RESULT": str(result),
        **way,
    }
    flags = (
        f"--num-processes={ENVIRONMENTS}",
        f"--batch-size={at_once}",
        f"--compare-steps={STEPS}",
        "--num-steps=1",
        "--num-env-steps=1",
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / "rl-batched" / "train.py"), *flags),
        env=env,
        cwd=directory,
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0
    times = json.loads(result.read_text())
    return times["ms_batched"], times["ms_single"]
