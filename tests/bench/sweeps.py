"""What a search costs the controller: trials of a random one from draw to end, and what they report
while they run.
"""

from __future__ import annotations

import time

from tests.bench.harness import Figure, Home, home, median, process_cpu_s

TRIALS = 10_000
LIVE = 10
REPORTS_S = 100  # of each live trial: 1,000 a second of all
REPORTING_S = 20.0
ROUNDS = 3
SETTLED_S = 1.0

_RANDOM = """apiVersion: fleetctl.dev/v1alpha1
kind: Sweep
metadata: {{name: {name}}}
spec:
  parallelism: 8
  trials: {trials}
  cache: {{policy: Never}}
  search:
    method: random
    metric: {{name: loss}}
    parameters:
      lr: {{distribution: log_uniform_values, min: 0.00001, max: 0.1}}
      width: {{min: 16, max: 1024}}
      drop: {{min: 0.0, max: 0.5}}
      depth: {{values: [2, 4, 8]}}
  template:
    python: SUBMIT(loss=params["lr"])
"""
_REPORTING = """apiVersion: fleetctl.dev/v1alpha1
kind: Sweep
metadata: {{name: {name}}}
spec:
  parallelism: {live}
  cache: {{policy: Never}}
  search:
    method: grid
    metric: {{name: loss}}
    parameters:
      x: {{min: 1, max: {live}}}
    early_terminate: {{type: hyperband, min_iter: 10}}
  template:
    python: |
      import time
      begun_s, sent = time.monotonic(), 0
      while True:
          due = int((time.monotonic() - begun_s) * {per_s})
          for step in range(sent, due):
              report(step=step, loss=1.0 / (step + 1))
          sent = due
          time.sleep(0.01)
"""


def random_trials() -> list[Figure]:
    with home() as at:
        at.run("up", "--detach")
        _cost_ms(at, "warm", 500)
        cost_ms = _cost_ms(at, "random", TRIALS)
    what = f"controller CPU a trial, {TRIALS:,} random trials of four parameters"
    return [Figure(what, f"{cost_ms:.2f} ms", "1 ms", cost_ms <= 1)]


def _cost_ms(at: Home, name: str, trials: int) -> float:
    pid = at.pid()
    path = at.write(f"{name}.yaml", _RANDOM.format(name=name, trials=trials))
    before_s = process_cpu_s(pid)
    at.run("apply", "-f", path, "--wait", "--timeout", "15m")
    return (process_cpu_s(pid) - before_s) / trials * 1000


def reports() -> list[Figure]:
    shares: list[float] = []
    rates: list[float] = []
    with home() as at:
        at.run("up", "--detach")
        text = _REPORTING.format(name="reporting", live=LIVE, per_s=REPORTS_S)
        at.run("apply", "-f", at.write("reporting.yaml", text))
        while _stored(at) < LIVE * REPORTS_S:
            time.sleep(SETTLED_S)
        pid = at.pid()
        for _ in range(ROUNDS):
            count, spent_s, begun_s = _stored(at), process_cpu_s(pid), time.monotonic()
            time.sleep(REPORTING_S)
            took_s = time.monotonic() - begun_s
            shares.append((process_cpu_s(pid) - spent_s) / took_s * 100)
            rates.append((_stored(at) - count) / took_s)
        at.run("delete", "sweep/reporting")
    share, rate = median(shares), median(rates)
    return [
        Figure(
            f"a controller that takes in {rate:,.0f} reports a second of {LIVE} trials",
            f"{share:.1f} % of a core",
            "20 %",
            share <= 20,
        )
    ]


def _stored(at: Home) -> int:
    """Reports that are in the store by now."""
    (row,) = at.json("query", "select count(*) many from metrics")
    return int(row["many"])
