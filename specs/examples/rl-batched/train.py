"""Train a policy that chooses how to rewrite a search, with a model's calls inside each step.

--use-batching steps the environments at once, by gymnasium's own AsyncVectorEnv; --no-batching
one after another, by its SyncVectorEnv. The same run times both. A killed training goes on from
its newest checkpoint.
"""

import argparse
import csv
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from ppo import PpoSettings, RolloutBatch, Weights, choose_actions, improve_policy, init_weights
from rewriting import OBSERVATION, OPERATORS, Rewriting

COLUMNS = ("update", "env_steps", "reward", "found", "ms_step")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--num-processes", type=int, default=1, help="environments")
    add("--num-steps", type=int, default=32, help="steps of each in a rollout")
    add("--num-env-steps", type=int, default=10_000, help="steps of all of them together")
    add("--use-batching", dest="batching", action="store_true", default=True)
    add("--no-batching", dest="batching", action="store_false")
    add("--batch-size", type=int, help="environments that step at once; default: all")
    add("--compare-steps", type=int, default=2, help="steps by which both ways are timed; 0: not")
    add("--lr", type=float, default=3e-4)
    add("--gamma", type=float, default=0.99)
    add("--clip-param", type=float, default=0.2)
    add("--ppo-epoch", type=int, default=4)
    add("--num-mini-batch", type=int, default=4)
    add("--value-loss-coef", type=float, default=0.5)
    add("--entropy-coef", type=float, default=0.01)
    add("--max-grad-norm", type=float, default=0.5)
    add("--chat-model", default="chat", help="rewrites; a name of an endpoint's `models`")
    add("--embed-model", default="embed", help="makes observations")
    add("--save-dir", type=Path, default=Path(), help="gets log.csv and final_model.npz")
    add("--save-interval", type=int, default=10, help="updates between two checkpoints")
    add("--seed", type=int, default=42)
    return parser.parse_args()


def make_envs(options: argparse.Namespace, *, batching: bool) -> VectorEnv[Any, Any, Any]:
    def one() -> Rewriting:
        return Rewriting(options.chat_model, options.embed_model)

    envs = [one] * options.num_processes
    if not batching:
        return SyncVectorEnv(envs)
    return AsyncVectorEnv(envs, max_concurrency=options.batch_size)


def compare_batching(
    options: argparse.Namespace, envs: dict[bool, VectorEnv[Any, Any, Any]]
) -> dict[str, float]:
    """Milliseconds of a step of all environments, both ways, by batching or not; medians."""
    took_ms = {}
    for batching, each in envs.items():
        each.reset(seed=options.seed)
        times = []
        for step in range(options.compare_steps):
            begun_s = time.monotonic()
            each.step(np.full(options.num_processes, step % len(OPERATORS)))
            times.append((time.monotonic() - begun_s) * 1000)
        took_ms[batching] = float(np.median(times))
    ratio = took_ms[False] / took_ms[True]
    print(
        f"a step of {options.num_processes} environments: {took_ms[True]:.0f} ms with batching,"
        f" {took_ms[False]:.0f} ms without: {ratio:.1f} times",
        flush=True,
    )
    return {"ms_batched": took_ms[True], "ms_single": took_ms[False], "speed_up": ratio}


class Stepping:
    """A vector environment between two rollouts: an episode goes on in the next one."""

    def __init__(self, envs: VectorEnv[Any, Any, Any], options: argparse.Namespace, begun: int):
        self._envs, self._steps = envs, options.num_steps
        self._now, _ = envs.reset(seed=options.seed + 1000 * begun)
        self._over = np.zeros(options.num_processes, bool)

    def rollout(self, weights: Weights, random: np.random.Generator) -> RolloutBatch:
        seen, rows = [self._now], []
        for _ in range(self._steps):
            actions, log_chances = choose_actions(weights, self._now, random)
            valid = ~self._over  # else this step begins an episode, whatever the action
            self._now, rewards, found, ended, _ = self._envs.step(actions)
            self._over = found | ended
            seen.append(self._now)
            rows.append((actions, log_chances, rewards, found, ended, valid))
        return RolloutBatch(
            np.stack(seen), *(np.stack(column) for column in zip(*rows, strict=True))
        )


def read_settings(options: argparse.Namespace) -> PpoSettings:
    return PpoSettings(
        lr=options.lr,
        gamma=options.gamma,
        clip=options.clip_param,
        epochs=options.ppo_epoch,
        mini_batches=options.num_mini_batch,
        value_coef=options.value_loss_coef,
        entropy_coef=options.entropy_coef,
        grad_norm_max=options.max_grad_norm,
    )


def train_policy(
    options: argparse.Namespace, weights: Weights, envs: VectorEnv[Any, Any, Any]
) -> float:
    """Rollout by rollout to the end, or to one after which it is asked to stop; the last reward."""
    size = options.num_steps * options.num_processes
    updates = max(1, options.num_env_steps // size)
    log = UpdateLog(options.save_dir / "log.csv", begun=int(weights["update"]))
    stepping = Stepping(envs, options, int(weights["update"]))
    reward = 0.0
    for update in range(int(weights["update"]), updates):
        random = np.random.default_rng((options.seed, update))
        begun_s = time.monotonic()
        rollout = stepping.rollout(weights, random)
        ms_step = (time.monotonic() - begun_s) * 1000 / options.num_steps
        improve_policy(weights, rollout, read_settings(options), random)
        weights["update"] = np.array(update + 1)
        reward = float(rollout.rewards[rollout.valid].mean())
        found = float(rollout.found.sum() / max(1, (rollout.found | rollout.ended).sum()))
        log.add(
            (update + 1, (update + 1) * size, round(reward, 6), round(found, 6), round(ms_step))
        )
        report_values("FLEETCTL_METRICS", {"step": update + 1, "reward": reward, "found": found})
        stop = stop_requested()
        if stop or (update + 1) % options.save_interval == 0 or update + 1 == updates:
            save_checkpoint(weights)
        if stop:
            sys.exit(143)
    return reward


class UpdateLog:
    """A CSV with a row an update. Rows after the checkpoint that it goes on from are made anew."""

    def __init__(self, path: Path, *, begun: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = list(csv.reader(path.open())) if path.exists() else []
        rows = [row for row in kept[1:] if int(row[0]) <= begun]
        self._path = path
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *rows])

    def add(self, row: tuple[Any, ...]) -> None:
        with self._path.open("a", newline="") as file:
            csv.writer(file).writerow(row)


def stop_requested() -> bool:
    if "FLEETCTL_CHECKPOINT" not in os.environ:  # absent in a trial of a sweep
        return False
    import fleetctl_checkpoint

    return bool(fleetctl_checkpoint.stop_requested())


def pack_weights(weights: Weights) -> bytes:
    data = io.BytesIO()
    np.savez(data, **weights)
    return data.getvalue()


def save_checkpoint(weights: Weights) -> None:
    if "FLEETCTL_CHECKPOINT" in os.environ:
        import fleetctl_checkpoint

        with fleetctl_checkpoint.saving(int(weights["update"])) as directory:
            (directory / "policy.npz").write_bytes(pack_weights(weights))


def load_weights(options: argparse.Namespace) -> Weights:
    found = os.environ.get("FLEETCTL_RESUME_FROM")
    if not found:
        return init_weights(OBSERVATION, len(OPERATORS), options.seed)
    with np.load(Path(found) / "policy.npz") as kept:
        return dict(kept)


def report_values(variable: str, values: dict[str, float]) -> None:
    """One line of JSON to the file that the variable names, else to stdout."""
    line = json.dumps(values)
    if path := os.environ.get(variable):
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    else:
        print(line, flush=True)


def main() -> int:
    options = parse_arguments()
    stop_requested()  # before the environments' processes begin, which TERM reaches, too
    weights = load_weights(options)
    begun = int(weights["update"])
    kinds = {True, False} if options.compare_steps else {options.batching}
    envs = {batching: make_envs(options, batching=batching) for batching in sorted(kinds)}
    try:
        timed = compare_batching(options, envs) if options.compare_steps else {}
        reward = train_policy(options, weights, envs[options.batching])
    finally:
        for each in envs.values():
            each.close()
    (options.save_dir / "final_model.npz").write_bytes(pack_weights(weights))
    result = {"reward": reward, "updates": int(weights["update"]), "resumed_from": begun, **timed}
    report_values("FLEETCTL_RESULT", result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
