"""Provider `modal` against the emulator, with 50 ms for each call."""

from __future__ import annotations

from collections import Counter

from tests.bench import clouds
from tests.bench.clouds import Cloud
from tests.bench.harness import Figure
from tests.emulators.modal.running import ModalEmulator

# The emulator grants what it is asked for; the real service's smallest plan makes 5 a second.
PACE = {
    "FLEETCTL_MODAL_CREATES_PER_S": "10000",
    "FLEETCTL_MODAL_CREATES_BURST": "10000",
    "FLEETCTL_MODAL_STARTS_AT_ONCE": "1000",
    "FLEETCTL_MODAL_SPAWNS_PER_S": "10000",
}
# Reading the output goes on while the task runs.
UNAVOIDABLE = ("create", "start the guest", "terminate", "hear that it is over")


def figures() -> list[Figure]:
    with ModalEmulator() as emulator:
        emulator.do("latency", seconds=clouds.CALL_S)
        cloud = Cloud(
            provider="modal",
            env={**emulator.env, **PACE},
            calls=lambda: Counter(emulator.rpcs()),
            live=lambda: len(emulator.live()),
            seeds_loop="tests.bench.seed_modal",
            unavoidable=UNAVOIDABLE,
        )
        with clouds.metered(cloud) as at:
            found = clouds.against_the_seeds_loop(at)
            found += clouds.with_idle_cores(at)
            found += clouds.idle_calls(at)
            found += clouds.warm_tasks(at, functions=True)
        assert emulator.live() == [], "sandboxes were left"
        return found
