"""Provider `daytona` against the emulator, with 50 ms for each request."""

from __future__ import annotations

from collections import Counter

from tests.bench import clouds
from tests.bench.clouds import Cloud
from tests.bench.harness import Figure
from tests.emulators.daytona.running import DaytonaEmulator

# The emulator grants what it is asked for; the real service's smallest tier makes 5 a second.
PACE = {
    "FLEETCTL_DAYTONA_CREATES_PER_S": "10000",
    "FLEETCTL_DAYTONA_CREATES_BURST": "10000",
}
# The SDK looks once before it waits for a sandbox to be started, and once for it to be destroyed.
UNAVOIDABLE = ("create", "look", "run to the end", "delete", "look")


def figures() -> list[Figure]:
    with DaytonaEmulator(latency_s=clouds.CALL_S) as emulator:
        cloud = Cloud(
            provider="daytona",
            env={**emulator.env, **PACE},
            calls=lambda: Counter(emulator.state()["requests"]),
            live=lambda: len(_present(emulator)),
            seeds_loop="tests.bench.seed_daytona",
            unavoidable=UNAVOIDABLE,
            tasks=500,
            parallelism=50,
            goal=1.2,
        )
        with clouds.metered(cloud) as at:
            found = clouds.against_the_seeds_loop(at)
            found += clouds.with_idle_cores(at)
            found += clouds.idle_calls(at)
            found += clouds.warm_tasks(at, functions=False)
        # The pool does not wait for its last ones to be gone.
        assert {one["state"] for one in _present(emulator)} <= {"destroying"}
        return found


def _present(emulator: DaytonaEmulator) -> list[dict[str, str]]:
    return list(emulator.state()["present"])
