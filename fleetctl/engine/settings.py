"""How the engine paces itself. Every number has a unit and a reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Defaults suit one person's machine; the simulator shortens them."""

    # A pass takes about half a millisecond, and a person's question waits for the turn's end.
    keys_per_turn_max: int = 64
    facts_per_turn_max: int = 1024
    # Many live runs make so many events that a turn for each would cost more than all else; a few
    # are answered at once. For each live run beyond those, turns are this much further apart.
    few_live: int = 16
    turn_gap_each_s: float = 0.0005
    turn_gap_max_s: float = 0.02  # a fiftieth of a task of one second, twice in its life
    # Beyond a few, a third of all turns would be for news that nothing waits for, such as that a
    # run has begun. It comes with the next turn, or so much later.
    news_wait_s: float = 0.25  # people hardly see it
    resync_s: float = 60.0  # the slow full scan under the watch
    sweep_s: float = 60.0  # how often sandboxes without a record are looked for
    sweep_stops_max: int = 50  # a wrong sweep must not be able to stop everything at once
    sweep_grace_s: float = 30.0  # beyond the provider's visibility bound and call deadline
    retry_initial_s: float = 0.5  # after a call with an unknown outcome, or a refusing world
    retry_max_s: float = 60.0
    stop_again_s: float = 15.0  # an unconfirmed stop is asked for again after grace plus this
    pass_retry_max_s: float = 300.0  # an object whose pass raises is looked at ever more rarely
    attention_after: int = (
        5  # failed stops or passes before an event says that a person should look
    )
    seed: int = 0
