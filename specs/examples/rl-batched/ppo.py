"""Proximal policy optimisation on numpy: one hidden layer, a policy and a value on top of it."""

from dataclasses import dataclass

import numpy as np

HIDDEN = 64
LAMBDA = 0.95  # of generalised advantages
Weights = dict[str, np.ndarray]


@dataclass(frozen=True)
class PpoSettings:
    lr: float = 3e-4
    gamma: float = 0.99
    clip: float = 0.2
    epochs: int = 4
    mini_batches: int = 4
    value_coef: float = 0.5
    entropy_coef: float = 0.01
    grad_norm_max: float = 0.5


@dataclass
class RolloutBatch:
    """Arrays of shape (steps, environments); observations have one step more, and a last axis.

    valid: False for the step in which a vector environment began an episode anew, which is no
    choice of the policy's.
    """

    observations: np.ndarray
    actions: np.ndarray
    log_chances: np.ndarray
    rewards: np.ndarray
    found: np.ndarray  # the episode is over, and nothing follows
    ended: np.ndarray  # its time is over, and more would have followed
    valid: np.ndarray


def init_weights(inputs: int, actions: int, seed: int) -> Weights:
    """With Adam's two moments of each weight, and how many steps it has made."""
    random = np.random.default_rng(seed)
    weights = {
        "w1": random.standard_normal((inputs, HIDDEN)) * (1 / inputs) ** 0.5,
        "b1": np.zeros(HIDDEN),
        "wp": random.standard_normal((HIDDEN, actions)) * 0.01,
        "bp": np.zeros(actions),
        "wv": random.standard_normal((HIDDEN, 1)) * (1 / HIDDEN) ** 0.5,
        "bv": np.zeros(1),
    }
    moments = {f"{it}.{name}": np.zeros_like(one) for it in "mv" for name, one in weights.items()}
    return {**weights, **moments, "adam": np.array(0), "update": np.array(0)}


def run_network(weights: Weights, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(hidden, log of each action's chance, value) of observations along the first axis."""
    hidden = np.tanh(inputs @ weights["w1"] + weights["b1"])
    logits = hidden @ weights["wp"] + weights["bp"]
    logits = logits - logits.max(-1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return hidden, logs, (hidden @ weights["wv"] + weights["bv"])[..., 0]


def choose_actions(
    weights: Weights, inputs: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """(actions, logs of their chances), drawn."""
    _, logs, _ = run_network(weights, inputs)
    actions = (logs + random.gumbel(size=logs.shape)).argmax(-1)
    return actions, np.take_along_axis(logs, actions[:, None], -1)[:, 0]


def estimate_advantages(
    weights: Weights, rollout: RolloutBatch, settings: PpoSettings
) -> np.ndarray:
    """Generalised advantages, of the shape of the rewards."""
    _, _, values = run_network(weights, rollout.observations)
    found = np.zeros_like(rollout.rewards)
    later = np.zeros(rollout.rewards.shape[1])
    for step in reversed(range(len(rollout.rewards))):
        following = values[step + 1] * ~rollout.found[step]
        error = rollout.rewards[step] + settings.gamma * following - values[step]
        over = rollout.found[step] | rollout.ended[step]
        later = (error + settings.gamma * LAMBDA * ~over * later) * rollout.valid[step]
        found[step] = later
    return found


def improve_policy(
    weights: Weights, rollout: RolloutBatch, settings: PpoSettings, random: np.random.Generator
) -> None:
    """Change the weights in place by one rollout."""
    gained = estimate_advantages(weights, rollout, settings)
    _, _, values = run_network(weights, rollout.observations[:-1])
    valid = rollout.valid.ravel()
    inputs = rollout.observations[:-1].reshape(len(valid), -1)[valid]
    actions, before = rollout.actions.ravel()[valid], rollout.log_chances.ravel()[valid]
    goals = (gained + values).ravel()[valid]
    gained = gained.ravel()[valid]
    gained = (gained - gained.mean()) / (gained.std() + 1e-8)
    for _ in range(settings.epochs):
        order = random.permutation(len(inputs))
        for part in np.array_split(order, settings.mini_batches):
            if len(part):
                slopes = _compute_gradients(
                    weights, settings, inputs[part], actions[part], before[part],
                    gained[part], goals[part],
                )  # fmt: skip
                _step_adam(weights, slopes, settings)


def _compute_gradients(
    weights: Weights,
    settings: PpoSettings,
    inputs: np.ndarray,
    actions: np.ndarray,
    before: np.ndarray,
    gained: np.ndarray,
    goals: np.ndarray,
) -> Weights:
    """Returns the loss: clipped objective, the value's error and the entropy, by the weights."""
    count = len(inputs)
    hidden, logs, values = run_network(weights, inputs)
    chances = np.exp(logs)
    ratio = np.exp(logs[np.arange(count), actions] - before)
    clipped = np.clip(ratio, 1 - settings.clip, 1 + settings.clip)
    counts = ratio * gained <= clipped * gained  # else the clip hides the slope
    chosen = np.eye(logs.shape[1])[actions]
    by_logits = -(ratio * gained * counts)[:, None] * (chosen - chances)
    entropy = -(chances * logs).sum(-1, keepdims=True)
    by_logits += settings.entropy_coef * chances * (logs + entropy)
    by_logits /= count
    by_value = settings.value_coef * (values - goals)[:, None] / count
    by_hidden = (by_logits @ weights["wp"].T + by_value @ weights["wv"].T) * (1 - hidden**2)
    slopes = {
        "w1": inputs.T @ by_hidden, "b1": by_hidden.sum(0),
        "wp": hidden.T @ by_logits, "bp": by_logits.sum(0),
        "wv": hidden.T @ by_value, "bv": by_value.sum(0),
    }  # fmt: skip
    norm = float(np.sqrt(sum((one**2).sum() for one in slopes.values())))
    shrunk = min(1.0, settings.grad_norm_max / (norm + 1e-8))
    return {name: one * shrunk for name, one in slopes.items()}


def _step_adam(weights: Weights, slopes: Weights, settings: PpoSettings) -> None:
    step = weights["adam"] = weights["adam"] + 1
    for name, slope in slopes.items():
        first = weights[f"m.{name}"] = 0.9 * weights[f"m.{name}"] + 0.1 * slope
        second = weights[f"v.{name}"] = 0.999 * weights[f"v.{name}"] + 0.001 * slope**2
        size = settings.lr / (1 - 0.9**step)
        scale = np.sqrt(second / (1 - 0.999**step)) + 1e-5
        weights[name] = weights[name] - size * first / scale
