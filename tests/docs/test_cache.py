"""Work that has succeeded is not done again, seen from outside: by the files that tasks leave."""

from __future__ import annotations

from pathlib import Path

from tests.docs.fleet import Fleet

MANIFEST = """
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: squares}
spec:
  parallelism: 4
  cache: {policy: ReuseSucceeded}  # stated: the tasks write to a volume
  tasks: {matrix: {n: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]}}
  template:
    source: {path: code}
    volumes: [{name: truth, mountPath: /truth}]
    python: |
      import uuid
      save_to_volume(f"ran-{n}-{uuid.uuid4().hex}", "")
      exec(open("work.py").read())
      SUBMIT(n=n, value=value)
"""


def test_equal_work_of_another_job_starts_nothing_and_of_a_deleted_one_all(
    fleet: Fleet, tmp_path: Path
) -> None:
    code, truth = tmp_path / "code", fleet.home / "local" / "volumes" / "truth"
    code.mkdir()
    (code / "work.py").write_text("value = n * n\n")
    manifest, other = tmp_path / "squares.yaml", tmp_path / "other.yaml"
    manifest.write_text(MANIFEST)
    other.write_text(MANIFEST.replace("squares", "other"))

    def ran() -> int:
        return sum(1 for path in truth.rglob("ran-*") if path.is_file())

    def results(key: str) -> list[object]:
        return [row["result"] for row in fleet.json("results", key)]

    fleet.ok("apply", "-f", str(manifest), "--wait")
    first = results("job/squares")
    assert ran() == 20

    (code / "__pycache__").mkdir()  # stays out of a copy, so it changes nothing
    (code / "__pycache__" / "work.pyc").write_text("compiled")
    applied = fleet.ok("apply", "-f", str(other), "--wait")
    assert "20 tasks: 20 cached, 0 to run" in applied
    assert (ran(), results("job/other")) == (20, first)
    job = fleet.json("get", "job/other")
    assert (job["status"]["succeeded"], job["status"]["cached"]) == (20, 20)
    tasks = fleet.ok("get", "tasks", "job/other", "-o", "wide").splitlines()[1:]
    assert all("Cached" in line and "the result of batchjob/squares" in line for line in tasks)

    fleet.ok("delete", "job/squares", "job/other")
    fleet.ok("apply", "-f", str(manifest), "--wait")
    assert (ran(), results("job/squares")) == (40, first)

    fleet.ok("retry", "job/squares", "--index", "3,7-9")
    fleet.ok("wait", "job/squares", "--for=condition=Complete")
    assert ran() == 44
    fleet.ok("delete", "job/squares")
