"""Stage 2: train a small network on the spirals, and go on where a killed attempt stopped.

A checkpoint holds everything that the next step depends on, and each step draws its batch from a
generator seeded by the step's number. So an interrupted training ends with the same weights as one
that was left alone.
"""

import io
import json
import os
import signal
import sys

import fleetctl_checkpoint as checkpoint
import numpy as np

STEPS = 400
CHECKPOINT_EVERY = 50
BATCH = 64
HIDDEN = 32
RATE = 0.02

State = dict[str, np.ndarray]


def init_state() -> State:
    random = np.random.default_rng(1)
    shapes = {"w1": (2, HIDDEN), "w2": (HIDDEN, HIDDEN), "w3": (HIDDEN, 1)}
    state = {name: random.standard_normal(of) * (2 / of[0]) ** 0.5 for name, of in shapes.items()}
    for layer, name in enumerate(list(shapes), start=1):
        state[f"b{layer}"] = np.zeros(shapes[name][1])
    for name in list(state):  # Adam's two moments of each weight
        state[f"m.{name}"] = np.zeros_like(state[name])
        state[f"v.{name}"] = np.zeros_like(state[name])
    return state | {"step": np.array(0)}


def run_network(state: State, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    one = np.tanh(points @ state["w1"] + state["b1"])
    two = np.tanh(one @ state["w2"] + state["b2"])
    return one, two, 1 / (1 + np.exp(-(two @ state["w3"] + state["b3"])[:, 0]))


def train_step(state: State, points: np.ndarray, labels: np.ndarray) -> None:
    """Change the state in place, by one step of Adam."""
    step = int(state["step"])
    chosen = np.random.default_rng(step).integers(len(points), size=BATCH)
    inputs, wanted = points[chosen], labels[chosen]
    one, two, guess = run_network(state, inputs)
    error = ((guess - wanted) / BATCH)[:, None]
    back_two = error @ state["w3"].T * (1 - two**2)
    back_one = back_two @ state["w2"].T * (1 - one**2)
    slopes = {"w1": inputs.T @ back_one, "w2": one.T @ back_two, "w3": two.T @ error}
    slopes |= {"b1": back_one.sum(0), "b2": back_two.sum(0), "b3": error.sum(0)}
    for name, slope in slopes.items():
        first = state[f"m.{name}"] = 0.9 * state[f"m.{name}"] + 0.1 * slope
        second = state[f"v.{name}"] = 0.999 * state[f"v.{name}"] + 0.001 * slope**2
        size = RATE / (1 - 0.9 ** (step + 1))
        state[name] = state[name] - size * first / (
            np.sqrt(second / (1 - 0.999 ** (step + 1))) + 1e-8
        )
    state["step"] = np.array(step + 1)


def measure_state(state: State, points: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    guess = run_network(state, points)[2]
    likely = np.clip(np.where(labels == 1, guess, 1 - guess), 1e-12, 1)
    right = (guess > 0.5) == labels
    return {"loss": float(-np.log(likely).mean()), "accuracy": float(right.mean())}


def save_state(state: State) -> None:
    """A kill in between leaves no marker, and the checkpoint before this one is the newest."""
    packed = io.BytesIO()  # not every volume can go back in a file
    np.savez(packed, **state)
    with checkpoint.saving(int(state["step"])) as directory:
        (directory / "state.npz").write_bytes(packed.getvalue())


def load_state() -> State:
    found = checkpoint.latest()
    if found is None:
        return init_state()
    with np.load(found / "state.npz") as kept:
        return dict(kept)


def crash_when_asked(step: int) -> None:
    """The most sudden end there is, once: no handler runs and nothing is flushed."""
    first_attempt = os.environ.get("FLEETCTL_ATTEMPT") == "1"
    if first_attempt and str(step) == os.environ.get("CRASH_AT_STEP"):
        print(f"step {step}: killing myself", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def train_steps(state: State, points: np.ndarray, labels: np.ndarray) -> None:
    """Step by step to the end, or to the step at which it is asked to stop."""
    for step in range(int(state["step"]), STEPS):
        crash_when_asked(step)
        train_step(state, points, labels)
        # The manifest gives it 20 s to save.
        stop = checkpoint.stop_requested()
        if (step + 1) % CHECKPOINT_EVERY == 0 or stop:
            save_state(state)
            with open(os.environ["FLEETCTL_METRICS"], "a", encoding="utf-8") as metrics:
                json.dump({"step": step + 1, **measure_state(state, points, labels)}, metrics)
                metrics.write("\n")
        if stop:
            sys.exit(128 + signal.SIGTERM)


def main() -> int:
    with np.load(sys.argv[1]) as data:
        points, labels = data["points"], data["labels"]
    state = load_state()
    begun_at = int(state["step"])
    print(f"beginning at step {begun_at}", flush=True)
    train_steps(state, points, labels)
    result = {"steps": STEPS, "resumed_from": begun_at, **measure_state(state, points, labels)}
    print(f"step {STEPS}: accuracy {result['accuracy']:.4f}")
    with open(os.environ["FLEETCTL_RESULT"], "w", encoding="utf-8") as file:
        json.dump(result, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
