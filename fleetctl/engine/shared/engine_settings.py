"""Sets the pace of the engine. Every number has a unit and a reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The numbers of an engine. Defaults suit one user's machine; the simulator shortens them."""

    # A pass takes about half a millisecond, and a user's request waits for the tick's end.
    keys_per_tick_max: int = 64
    messages_per_tick_max: int = 1024
    # Many live runs make so many events that a tick for each would dominate all other work; a few
    # are handled at once. For each live run beyond those, ticks are this much further apart.
    few_live: int = 16
    tick_gap_each_s: float = 0.0005
    tick_gap_max_s: float = 0.02  # a fiftieth of a one-second task, twice in its life
    # Beyond a few live runs, a third of all ticks would handle events that no object waits for,
    # such as the begin of a run. These are handled in the next tick, or after this delay.
    news_wait_s: float = 0.25  # users hardly see it
    # A run with this many reports in a row is looked at in steps of the gap: of a thousand reports
    # a second each would cost a tick. A user, or a search that stops trials, sees no difference.
    few_reports: int = 5
    report_gap_s: float = 0.1
    resync_s: float = 60.0  # the slow full scan under the watch
    # A sandbox without a record is ended within two minutes of its beginning: a list that lags, the
    # grace, and the next sweep.
    sweep_s: float = 30.0  # how often sandboxes without a record are looked for
    sweep_stops_max: int = 50  # a wrong sweep must not be able to stop everything at once
    sweep_grace_s: float = 30.0  # beyond the provider's visibility bound
    second_look_s: float = 2.0  # until a call that a provider refused is repeated
    retry_initial_s: float = 0.5  # after a call with an unknown outcome, or a refusing world
    retry_max_s: float = 60.0
    stop_again_s: float = 15.0  # an unconfirmed stop is repeated after grace plus this
    pass_retry_max_s: float = 300.0  # an object whose pass raises is looked at ever more rarely
    wandb_beat_s: float = 5.0  # between two heartbeats at W&B, as its own agent has it
    attention_after: int = 5  # failed stops or passes before an event asks a user to look
    # Records of deleted objects (spend, outcomes, events) stay this long, and at most this many.
    keep_deleted_s: float | None = None  # None = the limit of kind Settings and its defaults
    keep_deleted_objects_max: int = 100_000
    forget_every_s: float = 3600.0
    seed: int = 0
