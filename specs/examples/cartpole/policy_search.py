"""Balance a pole by cross-entropy search: try many policies, keep the best, search near them.

Knows nothing of fleetctl but two files: it appends what it measures to $FLEETCTL_METRICS and writes
its result to $FLEETCTL_RESULT. Without them it prints, so that it also runs by itself.
"""

import argparse
import json
import os
import sys

import gymnasium
import numpy as np

METRIC = "train/roll/ep_rew/mean"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--population", type=int, default=16, help="policies tried a generation")
    parser.add_argument("--elite_share", type=float, default=0.2, help="share of them that is kept")
    parser.add_argument("--noise", type=float, default=0.1, help="least spread of the next tries")
    parser.add_argument("--generations", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def episode_reward(env: gymnasium.Env, weights: np.ndarray, seed: int) -> float:
    """Steps that the pole stayed up, 500 at most; the policy pushes right when weights.x > 0."""
    observation, _ = env.reset(seed=seed)
    reward, over = 0.0, False
    while not over:
        observation, gained, fell, timed_out, _ = env.step(int(weights @ observation > 0))
        reward, over = reward + float(gained), fell or timed_out
    return reward


def search_policies(options: argparse.Namespace) -> list[float]:
    """The mean reward of each generation's policies."""
    env = gymnasium.make("CartPole-v1")
    random = np.random.default_rng(options.seed)
    centre, spread = np.zeros(4), np.ones(4)
    kept = max(1, round(options.elite_share * options.population))
    means = []
    for generation in range(options.generations):
        tries = centre + spread * random.standard_normal((options.population, 4))
        rewards = np.array([episode_reward(env, one, generation) for one in tries])
        best = tries[np.argsort(-rewards, kind="stable")[:kept]]
        # The noise keeps the search from settling too early; too much of it is never steady.
        centre, spread = best.mean(axis=0), best.std(axis=0) + options.noise
        means.append(float(rewards.mean()))
        report_values("FLEETCTL_METRICS", {"step": generation, METRIC: means[-1]})
    return means


def report_values(variable: str, values: dict[str, float]) -> None:
    """One line of JSON to the file that the variable names, else to stdout."""
    line = json.dumps(values)
    if path := os.environ.get(variable):
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    else:
        print(line)


def main() -> int:
    options = parse_arguments()
    means = search_policies(options)
    print(f"mean reward {means[0]:.0f} at first, {means[-1]:.0f} in the end")
    tried = options.population * options.generations
    report_values(
        "FLEETCTL_RESULT", {METRIC: means[-1], "first": means[0], "policies_tried": tried}
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
