"""How the engine paces itself. Every number has a unit and a reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Defaults suit one person's machine; the simulator shortens them."""

    # A pass takes about half a millisecond, and a person's question waits for the tick's end.
    keys_per_tick_max: int = 64
    messages_per_tick_max: int = 1024
    # Many live runs make so many events that a tick for each would cost more than all else; a few
    # are answered at once. For each live run beyond those, ticks are this much further apart.
    few_live: int = 16
    tick_gap_each_s: float = 0.0005
    tick_gap_max_s: float = 0.02  # a fiftieth of a task of one second, twice in its life
    # Beyond a few, a third of all ticks would be for news that nothing waits for, such as that a
    # run has begun. It comes with the next tick, or so much later.
    news_wait_s: float = 0.25  # people hardly see it
    # A run that has reported so often in a row is looked at in steps of the gap: of a thousand
    # reports a second each would cost a tick. A person, or a search that stops trials, sees no
    # difference.
    few_reports: int = 5
    report_gap_s: float = 0.1
    resync_s: float = 60.0  # the slow full scan under the watch
    # What has no record is ended within two minutes of its beginning: a list that lags, the grace,
    # and the next sweep.
    sweep_s: float = 30.0  # how often sandboxes without a record are looked for
    sweep_stops_max: int = 50  # a wrong sweep must not be able to stop everything at once
    sweep_grace_s: float = 30.0  # beyond the provider's visibility bound
    second_look_s: float = 2.0  # until what a provider refused is asked for again
    retry_initial_s: float = 0.5  # after a call with an unknown outcome, or a refusing world
    retry_max_s: float = 60.0
    stop_again_s: float = 15.0  # an unconfirmed stop is asked for again after grace plus this
    pass_retry_max_s: float = 300.0  # an object whose pass raises is looked at ever more rarely
    wandb_beat_s: float = 5.0  # between two heartbeats at W&B, as its own agent has it
    attention_after: int = (
        5  # failed stops or passes before an event says that a person should look
    )
    # What deleted objects left behind (spend, outcomes, events) stays so long, and no more of it
    # than this.
    keep_deleted_s: float | None = None  # None = as kind Settings and its defaults have it
    keep_deleted_objects_max: int = 100_000
    forget_every_s: float = 3600.0
    seed: int = 0
