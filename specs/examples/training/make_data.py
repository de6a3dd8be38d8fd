"""Stage 1: write two interleaved spirals, labelled 0 and 1, to the file that is named."""

import io
import json
import os
import sys

import numpy as np

POINTS = 400  # of each spiral
NOISE = 0.05


def make_spirals() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    turn = np.linspace(0.5, 2.5 * np.pi, POINTS)
    arm = np.stack([np.cos(turn), np.sin(turn)], axis=1) * (turn / turn[-1])[:, None]
    points = np.concatenate([arm, -arm]) + NOISE * random.standard_normal((2 * POINTS, 2))
    return points, np.repeat([0.0, 1.0], POINTS)


def main() -> int:
    path = sys.argv[1]
    points, labels = make_spirals()
    packed = io.BytesIO()  # savez goes back in what it writes, which not every volume lets it
    np.savez(packed, points=points, labels=labels)
    with open(path, "wb") as file:
        file.write(packed.getvalue())
    print(f"wrote {len(points)} points to {path}")
    with open(os.environ["FLEETCTL_RESULT"], "w", encoding="utf-8") as file:
        json.dump({"path": path, "points": len(points)}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
