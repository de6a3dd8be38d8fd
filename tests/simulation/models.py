"""The simulated providers: what each promises (its Contract) and how it misbehaves within that
promise.

Data only. `provider.py` acts it out. The four stand for the providers that fleetctl has and will
have.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.providers.contract.terms import Contract
from tests.simulation.nodes import NODES_MAX


@dataclass(frozen=True, slots=True)
class Odds:
    """Chance per call, 0..1, while faults last."""

    lose_reply: float = 0.0  # the effect happens, then the call raises or never returns
    fail_before: float = 0.0  # the call raises an ordinary exception and nothing happened
    hang_before: float = 0.0  # nothing happened and the call never returns
    unavailable: float = 0.0  # `Unavailable`: nothing happened, and the provider says so
    partial_answer: float = 0.0  # `observe` leaves runs out
    stop_ignored: float = 0.0  # `stop` says ok and the sandbox lives on
    stop_refused: float = 0.0  # `stop` raises although the sandbox lives
    push_lost: float = 0.0
    push_twice: float = 0.0
    vanish: float = 0.0  # per sandbox: it is gone without an end record
    preempt: float = 0.0  # per sandbox: the provider ends it and says so
    twin: float = (
        0.0  # per create: the transport sends it twice; the twin never begins and dies by itself
    )


@dataclass(frozen=True, slots=True)
class Model:
    """One provider. Latencies are (least, most) seconds, drawn evenly."""

    name: str
    contract: Contract
    latency_s: tuple[float, float]
    landing_s: tuple[
        float, float
    ]  # from the request to its effect; never above the visibility bound
    stop_takes_s: tuple[float, float]
    push_delay_s: tuple[float, float]
    odds: Odds
    stopped_leaves_record: bool = True  # else a stopped run answers `Gone`
    capacity: int | None = None  # sandboxes at once; beyond it `Unavailable(NoCapacity)`
    down_s: tuple[float, float] = (0.0, 0.0)  # how long an outage lasts, when the seed has one
    usd_per_s: float | None = 0.001


def _contract(**changes: object) -> Contract:
    values: dict[str, object] = {
        "visibility_bound_s": 0.0,
        "list_shows_finished": True,
        "strong_get": True,
        "max_lifetime_s": None,
        "billing_quantum_s": 0.0,
        "calls_per_s": 1_000.0,
        "calls_at_once": 64,
        "call_deadline_s": 10.0,
        "default_parallelism": 4,
        "poll_s": 10.0,
        "functions": True,
        "nodes_max": NODES_MAX,
    }
    return Contract(**(values | changes))  # type: ignore[arg-type]


# Like `local`: the effect of a call happens at once, and look-ups never lie.
STRICT = Model(
    name="strict",
    contract=_contract(sandboxes_at_once=5),
    latency_s=(0.001, 0.05),
    landing_s=(0.0, 0.0),
    stop_takes_s=(0.0, 2.0),
    push_delay_s=(0.0, 0.05),
    odds=Odds(
        lose_reply=0.04,
        fail_before=0.04,
        hang_before=0.01,
        unavailable=0.03,
        partial_answer=0.05,
        push_lost=0.1,
        push_twice=0.05,
        vanish=0.04,
        preempt=0.03,
    ),
)

# Like Modal: creates land late, lists hide what has finished and lag, a look-up may be behind.
HIDES = Model(
    name="hides",
    contract=_contract(
        visibility_bound_s=20.0,
        list_shows_finished=False,
        strong_get=False,
        max_lifetime_s=86_400.0,
        calls_per_s=50.0,
        calls_at_once=16,
        call_deadline_s=15.0,
        poll_s=15.0,
        sandboxes_at_once=4,
        two_phase=True,
    ),
    latency_s=(0.05, 1.5),
    landing_s=(0.0, 12.0),
    stop_takes_s=(0.0, 8.0),
    push_delay_s=(0.0, 5.0),
    odds=Odds(
        lose_reply=0.08,
        fail_before=0.05,
        hang_before=0.03,
        unavailable=0.05,
        partial_answer=0.2,
        stop_ignored=0.1,
        stop_refused=0.1,
        push_lost=0.5,
        push_twice=0.1,
        vanish=0.06,
        preempt=0.03,
        twin=0.15,
    ),
    stopped_leaves_record=False,
    down_s=(10.0, 120.0),
)

# A network that eats answers: every second reply is lost or never comes.
LOSES = Model(
    name="loses",
    contract=_contract(visibility_bound_s=8.0, calls_at_once=8, call_deadline_s=5.0, poll_s=8.0),
    latency_s=(0.01, 0.5),
    landing_s=(0.0, 6.0),
    stop_takes_s=(0.0, 4.0),
    push_delay_s=(0.0, 1.0),
    odds=Odds(
        lose_reply=0.5,
        fail_before=0.1,
        hang_before=0.05,
        unavailable=0.02,
        partial_answer=0.1,
        stop_refused=0.1,
        push_lost=0.3,
        push_twice=0.2,
        vanish=0.02,
    ),
    down_s=(5.0, 60.0),
)

# A small account: few calls a second, few sandboxes at once, 429 with and without Retry-After.
RATED = Model(
    name="rated",
    contract=_contract(
        visibility_bound_s=2.0, calls_per_s=2.0, calls_at_once=2, call_deadline_s=20.0, poll_s=20.0
    ),
    latency_s=(0.05, 0.5),
    landing_s=(0.0, 1.0),
    stop_takes_s=(0.0, 3.0),
    push_delay_s=(0.0, 2.0),
    odds=Odds(
        lose_reply=0.03,
        fail_before=0.03,
        unavailable=0.4,
        partial_answer=0.05,
        stop_ignored=0.05,
        push_lost=0.2,
        vanish=0.02,
        preempt=0.02,
    ),
    capacity=3,
)

MODELS = {model.name: model for model in (STRICT, HIDES, LOSES, RATED)}
