"""Every example runs on provider `local` through the real command line, to its golden values.

They share a home, and so the environments that their images ask for. With xdist all of them go to
one worker.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from fleetctl.specs.values.exempt import EXEMPT
from tests.docs.fleet import EXAMPLES, HANG_S, Fleet
from tests.docs.screens import README
from tests.emulators.llm.running import running
from tests.emulators.llm.server import Model
from tests.emulators.wandb.light import LIGHT
from tests.emulators.wandb.running import WandbEmulator

RUN_BY_A_TEST = {
    "hello.yaml",
    "retries.yaml",
    "services.yaml",
    "batch.yaml",
    "chain.yaml",
    "budget.yaml",
    "schedule.yaml",
    "settings.yaml",
    "notify.yaml",
    "policy.yaml",
    "queue.yaml",
    "source.yaml",
    "sweep-early.yaml",
    "sweep-grid.yaml",
    "sweep-winner.yaml",
    "sweep-local-and-cloud.yaml",
    "sweep-wandb.yaml",
    "sweep-wandb-account.yaml",
    "sweep.yaml",
    "cartpole.yaml",
    "training.yaml",
    "folder.yaml",  # test_folder.py
    "outputs.yaml",  # the screen of docs/how-to/bring-results-back.md
    "function.yaml",
    "groups.yaml",
    "placement.yaml",
    "rl-batched.yaml",
    "endpoint.yaml",
    "prompts.yaml",  # test_prompts.py
    "served-model.yaml",  # tests/servers/test_served_models.py
}


HEARD_WAIT_S = 240.0


def test_every_example_has_a_test_that_runs_it() -> None:
    assert {path.name for path in EXAMPLES.glob("*.yaml")} == RUN_BY_A_TEST


def test_all_examples_are_valid_together(fleet: Fleet) -> None:
    documents = sum(path.read_text("utf-8").count("\nkind:") for path in EXAMPLES.glob("*.yaml"))
    keys = "WANDB_API_KEY=local-key MODAL_TOKEN_ID=ak-1 MODAL_TOKEN_SECRET=as-1"
    said = fleet.shell(f"{keys} fleetctl validate -f '{EXAMPLES}'")
    assert said.code == 0, said
    assert said.out.count(" valid\n") == documents


def test_hello_greets_everybody(fleet: Fleet) -> None:
    fleet.apply("hello.yaml")
    assert [row["result"] for row in fleet.results("job/hello")] == [
        {"greeting": "hello, Ada", "born": 1815},
        {"greeting": "hello, Grace", "born": 1906},
        {"greeting": "hello, Katherine", "born": 1918},
    ]
    assert "greeting Grace" in fleet.ok("logs", "job/hello", "--index", "1")


def test_a_chain_takes_results_from_one_job_to_the_next(fleet: Fleet) -> None:
    fleet.apply("chain.yaml")
    assert [(row["index"], row["result"]) for row in fleet.results("job/score")] == [
        (1, {"document": "b", "score": 2.0}),
        (2, {"document": "c", "score": 3.0}),
    ]
    drawn = json.loads(fleet.ok("graph", "job/score", "-o", "json"))
    assert [(it["key"], it["state"]) for it in drawn["objects"]] == [
        ("batchjob/split", "Succeeded"),
        ("batchjob/score", "Succeeded"),
        ("batchjob/report", "Succeeded"),
    ]


def test_a_program_of_this_machine_is_told_when_the_work_is_over(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "home", {"HOME": str(tmp_path)})
    fleet.apply("notify.yaml")
    told, end_s = tmp_path / "notices.jsonl", time.monotonic() + HEARD_WAIT_S
    while not (told.exists() and told.read_text().endswith("}\n")):
        assert time.monotonic() < end_s
        time.sleep(0.05)
    (line,) = told.read_text().splitlines()
    data = json.loads(line)["data"]
    assert (data["name"], data["event"], data["counts"]["succeeded"]) == ("squares", "Succeeded", 3)
    while "Delivered" not in fleet.ok("get", "notices"):
        assert time.monotonic() < end_s
    assert "Succeeded delivered" in fleet.ok("describe", "job/squares")
    fleet.close()


def test_a_queue_lets_all_of_its_work_be_done(fleet: Fleet) -> None:
    fleet.ok("apply", "-f", str(EXAMPLES / "queue.yaml"))
    fleet.ok("wait", "job/nightly", "job/paper")
    assert [row["result"] for row in fleet.results("job/nightly")] == [
        {"shard": it} for it in range(3)
    ]
    assert fleet.status("job/paper")["queued"]["priority"] == 1000
    assert "sandboxes" in fleet.ok("get", "queues")
    assert fleet.ok("suspend", "queue/lab") == "queue/lab suspended\n"
    end_s = time.monotonic() + HANG_S
    while " Suspended " not in (seen := fleet.ok("get", "queues")):
        assert time.monotonic() < end_s, seen


def test_a_repository_is_kept_applied(fleet: Fleet, tmp_path: Path) -> None:
    tree = tmp_path / "fleet"
    (tree / "fleet").mkdir(parents=True)
    shutil.copy(EXAMPLES / "hello.yaml", tree / "fleet")
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", str(tree), *author, *words], check=True)
    text = (EXAMPLES / "source.yaml").read_text("utf-8")
    local = text.replace("https://git.example.org/team/fleet.git", f"file://{tree}")
    assert local != text
    fleet.ok("apply", "-f", "-", stdin=local)
    fleet.ok("wait", "source/fleet", "--for", "condition=Ready", "--timeout", "300s")
    fleet.ok("wait", "job/hello")
    refused = fleet.run("set", "job/hello", "parallelism=1")
    assert refused.code == 3 and "is kept by source/fleet: `fleet/hello.yaml:" in refused.talk
    assert fleet.run("diff", "source/fleet").code == 0
    assert "is equal to" in fleet.ok("reconcile", "source/fleet")
    fleet.ok("delete", "source/fleet", "--yes")
    assert "hello" not in fleet.ok("get", "jobs")


def test_a_schedule_tells_its_next_night_and_runs_by_hand(fleet: Fleet) -> None:
    fleet.ok("apply", "-f", str(EXAMPLES / "schedule.yaml"))
    assert "0 3 * * *  Europe/Berlin  False" in fleet.ok("get", "schedules")
    fleet.ok("create", "job", "tonight", "--from", "schedule/evaluate")
    fleet.ok("wait", "job/tonight", "--timeout", "400s")
    found = [row["result"] for row in fleet.results("job/tonight")]
    assert found == [{"suite": "arithmetic", "passed": 10}, {"suite": "grammar", "passed": 7}]
    fleet.ok("delete", "schedule/evaluate")
    assert fleet.run("get", "job/tonight").code == 4, "what it made goes with it"


def test_settings_hold_for_what_is_over_and_for_backups(fleet: Fleet) -> None:
    fleet.ok("apply", "-f", str(EXAMPLES / "settings.yaml"))
    limits = {
        it["sort"]: it["limits"] for it in json.loads(fleet.ok("gc", "--dry-run", "-o", "json"))
    }
    assert limits["logs"] == {"maxAge": 14 * 86_400.0, "maxSize": 1 << 30, "keepLast": 10}
    assert limits["environments"]["groupSize"] == limits["reuse"]["groupSize"] == 12 << 30
    assert limits["environments"]["maxSize"] is None
    assert "0 3 * * *" in fleet.ok("get", "settings")
    fleet.ok("gc")
    fleet.ok("delete", "settings/default")


def test_a_policy_binds_whoever_writes(fleet: Fleet) -> None:
    example = (EXAMPLES / "policy.yaml").read_text("utf-8")
    larger = example.replace("parallelism: 2", "parallelism: 9")
    denied = "batchjob/nightly-report is denied by policy/production: at most 8 at once, not 9"
    for flags in ([], ["--dry-run"], ["--dry-run=server"]):
        answer = fleet.run("apply", "-f", "-", *flags, stdin=larger)
        assert (answer.code, answer.out) == (3, "") and denied in answer.talk
    assert fleet.run("get", "policy/production").code == 4, "all or nothing of one apply"
    fleet.apply("policy.yaml")
    assert "production  BatchJob,Sweep,TrainingRun  all" in fleet.ok("get", "policies")
    for words in (("set", "parallelism=9"), ("scale", "--parallelism", "9")):
        answer = fleet.run(words[0], "job/nightly-report", *words[1:])
        assert answer.code == 3 and denied in answer.talk
    fleet.ok("run", "--name", "by-hand", "--detach", "--", "true")
    answer = fleet.run("set", "job/by-hand", "labels.tier=production")
    assert answer.code == 3 and "names its team" in answer.talk
    assert fleet.json("get", "job/nightly-report")["spec"]["parallelism"] == 2
    day = (datetime.now(UTC) + timedelta(days=30)).date().isoformat()
    said = f"production until {day} because of a test"
    fleet.ok("set", "job/nightly-report", "parallelism=9", f"annotations.{EXEMPT}={said}")
    seen = fleet.ok("describe", "job/nightly-report")
    assert f"Exempt:      policy/production until {day}, because of a test" in seen
    assert f"exempt from policy/production until {day}, because of a test: at most 8" in seen
    fleet.ok("delete", "policy/production", "job/nightly-report", "job/by-hand")


def test_a_task_that_fails_once_is_tried_again_and_its_first_log_is_kept(fleet: Fleet) -> None:
    fleet.apply("retries.yaml")
    rows = fleet.results("job/retries")
    assert [row["attempts"] for row in rows] == [1, 2, 1]
    assert [row["result"] for row in rows] == [{"attempt": 1}, {"attempt": 2}, {"attempt": 1}]
    first = fleet.ok("logs", "job/retries", "--index", "1", "--attempt", "1", "--no-prefix")
    assert first.splitlines() == ["task 1, attempt 1", "the disk on the left is full"]


def test_tasks_ask_the_service_beside_them(fleet: Fleet) -> None:
    fleet.apply("services.yaml")
    rows = fleet.results("job/words")
    assert [row["result"]["reversed"] for row in rows] == ["olleh", "xobdnas", "racedis"]
    assert '"GET /sandbox HTTP/1.1" 200' in fleet.ok(
        "logs", "job/words", "--index", "1", "--service", "reverser"
    )
    said = fleet.shell("fleetctl logs job/words --service other")
    assert (said.code, "its services are `reverser`" in said.talk) == (4, True)


def test_a_trainer_asks_the_servers_of_its_run(fleet: Fleet) -> None:
    fleet.apply("groups.yaml")
    first = json.loads(fleet.ok("results", "tr/rl", "-o", "jsonl").splitlines()[0])
    assert first["result"] == {"servers": ["server 0", "server 1", "server 2"]}
    assert "rollout: 3 nodes, Stopped" in fleet.ok("describe", "tr/rl")


def test_the_three_batches_give_their_golden_values(fleet: Fleet) -> None:
    fleet.apply("batch.yaml")
    assert [row["result"] for row in fleet.results("job/parallel-tasks")] == [
        {"total": 499500},
        {"pi_approx": 3.141592653589793},
        {"greeting": "Hello from sandbox"},
    ]
    assert [row["result"] for row in fleet.results("job/chunks")] == [
        {"chunk_id": index, "count": 3} for index in range(3)
    ]
    written = sorted((fleet.volume("rlm-volume-dspy") / "results").iterdir())
    assert {path.name: path.read_text("utf-8") for path in written} == {
        "chunk_0.json": "[2, 4, 6]",
        "chunk_1.json": "[8, 10, 12]",
        "chunk_2.json": "[14, 16, 18]",
    }
    assert [row["result"]["value"] for row in fleet.results("job/factorials")] == [
        3628800,
        39916800,
        479001600,
        6227020800,
        87178291200,
    ]


def test_the_sequential_batch_runs_in_one_sandbox(fleet: Fleet) -> None:
    fleet.apply("batch.yaml")
    tasks = fleet.json("get", "tasks", "job/factorials")["items"]
    assert len(tasks) == 5
    assert len({task["status"]["sandbox"] for task in tasks}) == 1


def test_a_deleted_job_leaves_its_volume_and_the_files_in_it(fleet: Fleet) -> None:
    fleet.apply("batch.yaml")
    fleet.ok("delete", "job/chunks", "volume/rlm-volume-dspy")
    kept = fleet.volume("rlm-volume-dspy") / "results" / "chunk_1.json"
    assert kept.read_text("utf-8") == "[8, 10, 12]"


def test_a_budget_counts_what_the_jobs_under_it_cost(fleet: Fleet) -> None:
    fleet.apply("budget.yaml")
    rows = fleet.results("job/thumbnails")
    assert [row["result"]["pixels"] for row in rows] == [64**2, 128**2, 256**2, 512**2]
    status = fleet.json("get", "budget/team-vision")["status"]
    assert 0 <= status["used"] < 0.25
    assert (status["reserved"], status["state"], status["maxCost"]) == (0.0, "OK", 5)


def test_a_function_runs_hundreds_of_tasks_and_stays_while_they_need_it(fleet: Fleet) -> None:
    fleet.apply("function.yaml")
    rows = fleet.results("job/embed")
    assert len(rows) == 6 * 40
    assert rows[0]["result"] == {"norm": 3, "at": 2}
    assert {row["result"]["norm"] for row in rows} <= {3, 5, 9}
    said = fleet.ok("get", "functions").splitlines()
    assert said[0].split() == ["NAME", "STATUS", "PROVIDER", "GPU", "CONTAINERS", "AGE"]
    assert said[1].split()[:5] == ["embedder", "Ready", "local", "-", "0-8"]
    fleet.ok("delete", "job/embed", "fn/embedder")
    assert "embedder" not in fleet.ok("get", "fn", "-o", "name")


def test_a_search_ends_the_trials_that_do_badly_and_keeps_its_best(fleet: Fleet) -> None:
    fleet.apply("sweep-early.yaml")
    status = fleet.status("sweep/early")
    rows = fleet.json("results", "sweep/early")
    states = [row["state"] for row in rows]
    assert (status["phase"], len(rows)) == ("Succeeded", 12)
    assert states.count("Stopped") == status["stopped"] > 0
    assert states.count("Succeeded") == 12 - status["stopped"] > 0
    best = max(rows, key=lambda row: row["params"]["lr"])
    assert (best["state"], status["best"]["index"]) == ("Succeeded", best["index"])
    described = fleet.ok("describe", "sweep/early")
    stopped = next(row["index"] for row in rows if row["state"] == "Stopped")
    assert f"Stopped:     trial {stopped}: value " in described
    assert "Importance:" not in described  # of twelve trials it would be a guess
    assert fleet.ok("get", "sweep/early").split()[6] == "STOPPED"
    drawn = " ".join(fleet.ok("plot", "sweep/early", "--kind", "rungs").split())
    assert "came so far: 12 trials at 3" in drawn and "stopped: trial " in drawn


def test_the_grid_finds_its_golden_best(fleet: Fleet) -> None:
    said = fleet.apply("sweep-grid.yaml")
    losses = {
        (row["params"]["lr"], row["params"]["batch_size"]): row["result"]["loss"]
        for row in fleet.results("sweep/grid")
    }
    assert losses == {
        (0.001, 32): 23.873466489369594,
        (0.01, 32): 3.0942457101488188,
        (0.001, 64): 13.577456193359302,
        (0.01, 64): 1.6024042183073266,
    }
    best = fleet.status("sweep/grid")["best"]
    assert best["params"] == {"lr": 0.01, "batch_size": 64}
    assert best["metric"] == {"name": "loss", "value": 1.6024042183073266}
    assert "lr=0.01" in said and "batch_size=64" in said and "1.6024042183073266" in said


def test_the_winner_of_a_search_is_trained_with_every_seed(fleet: Fleet) -> None:
    fleet.apply("sweep-winner.yaml")
    assert fleet.status("sweep/short")["best"]["params"] == {"lr": 1.0, "momentum": 0.5}
    rows = fleet.results("job/full")
    assert [row["params"] for row in rows] == [
        {"lr": 1.0, "momentum": 0.5, "seed": seed} for seed in (1, 2, 3)
    ]
    assert {row["result"]["loss"] for row in rows} == {0.0}


def test_a_search_over_this_machine_and_a_cloud_needs_no_account(fleet: Fleet) -> None:
    fleet.apply("sweep-local-and-cloud.yaml")
    rows = fleet.results("sweep/local-and-cloud")
    best = fleet.status("sweep/local-and-cloud")["best"]
    assert len(rows) == 12
    assert best["metric"]["value"] == min(row["result"]["val/loss"] for row in rows)


TRAINS = """
import os, runpy
from pathlib import Path
assert "policy_lr" in Path(os.environ["WANDB_SWEEP_PARAM_PATH"]).read_text()
with open(os.environ["FLEETCTL_METRICS"], "a") as file:
    file.write('{"train/roll/ep_rew/mean": 1.0}\\n')
runpy.run_path("light.py", run_name="__main__")
"""


def test_a_sweep_of_a_repository_runs_in_a_wandb_account(
    fleet: Fleet, tmp_path: Path, wandb_emulator: WandbEmulator
) -> None:
    """As the example says, but for where repository and service are, and how many trials."""
    (tmp_path / "train.py").write_text(TRAINS)
    shutil.copy(LIGHT, tmp_path)
    for words in ("init -qb main", "add .", "-c user.name=a -c user.email=a@b commit -qm a"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    text = (EXAMPLES / "sweep-wandb-account.yaml").read_text("utf-8")
    for here, there in (
        ("https://github.com/example/solver.git", f"file://{tmp_path}"),
        ("project: solver", f"project: solver, baseUrl: {wandb_emulator.url}"),
        ("trials: 50", "trials: 4"),
        ("trialsPerWorker: 5", "trialsPerWorker: 2"),
        ("parallelism: 10", "parallelism: 2"),
    ):
        assert here in text
        text = text.replace(here, there)
    (image,) = re.findall(r"(?m)^    image: .*\n", text)
    fleet.env["WANDB_API_KEY"] = wandb_emulator.api_key
    fleet.ok("apply", "-f", "-", "--wait", stdin=text.replace(image, ""))
    rows, status = fleet.results("sweep/at-wandb"), fleet.status("sweep/at-wandb")
    (sweep,) = wandb_emulator.state()["sweeps"]
    runs = wandb_emulator.runs(sweep["name"])
    assert [(it["begun"], it["exit_codes"]) for it in runs] == [(1, [0])] * 4
    points = [sorted(map(str, (it["params"] for it in found))) for found in (rows, runs)]
    assert points[0] == points[1]
    assert sweep["config"]["early_terminate"] == {"type": "hyperband", "min_iter": 10}
    assert (status["wandb"]["id"], status["wandb"]["runCount"]) == (sweep["name"], 4)
    url = status["wandb"]["url"]
    pages = {it["name"]: f"{url.partition('/sweeps/')[0]}/runs/{it['name']}" for it in runs}
    trials = fleet.json("get", "tasks", "sweep/at-wandb")["items"]
    for named in (rows, [it["status"] for it in trials]):
        assert {it["wandb"]["id"]: it["wandb"]["url"] for it in named} == pages
    described = fleet.ok("describe", "sweep/at-wandb")
    best = rows[status["best"]["index"]]["wandb"]["url"]
    assert url in described and f"best trial {status['best']['index']}: {best}" in described
    wide = fleet.ok("get", "tasks", "sweep/at-wandb", "-o", "wide")
    assert "W&B RUN" in wide and all(it in wide for it in pages)
    # What the controller keeps for itself is no part of the object that people see.
    annotations = fleet.json("get", "sweep/at-wandb")["metadata"]["annotations"]
    assert "fleetctl.dev/wandb" not in annotations
    # Its key is in nothing that is kept or handed on.
    fleet.ok("bundle", str(tmp_path / "bundle.tar.gz"))
    with tarfile.open(tmp_path / "bundle.tar.gz") as bundle:
        bundle.extractall(tmp_path / "bundle", filter="data")
    kept = [
        it for top in (fleet.home, tmp_path / "bundle") for it in top.rglob("*") if it.is_file()
    ]
    key = wandb_emulator.api_key.encode()
    assert [it for it in kept if key in it.read_bytes()] == []
    assert len(kept) > 10


def test_the_demo_finds_a_model_that_reads_digits_it_never_saw(fleet: Fleet) -> None:
    said = fleet.apply("sweep.yaml")
    rows = fleet.results("sweep/digits")
    assert len(rows) == 24
    best = fleet.status("sweep/digits")["best"]
    assert best["metric"]["value"] == max(row["result"]["accuracy"] for row in rows)
    assert rows[best["index"]]["params"] == best["params"]
    assert rows[best["index"]]["result"]["test_accuracy"] > 0.95
    # A search that could not fail would show nothing: bad points are really bad.
    assert min(row["result"]["accuracy"] for row in rows) < 0.5
    assert f"best trial {best['index']}" in said


def test_the_demo_screen_of_the_readme_names_the_trial_that_wins(fleet: Fleet) -> None:
    fleet.apply("sweep.yaml")
    best = fleet.status("sweep/digits")["best"]
    shown = r"best trial (\d+): (.*) accuracy=([0-9.]+)$"
    line = re.search(shown, README.read_text("utf-8"), re.MULTILINE)
    assert line is not None
    assert int(line[1]) == best["index"]
    assert line[2] == " ".join(f"{name}={value}" for name, value in best["params"].items())
    # Numeric libraries differ in the last digits from one processor to the next.
    assert float(line[3]) == pytest.approx(best["metric"]["value"], abs=1e-3)


def test_the_wandb_sweep_file_runs_as_it_is(fleet: Fleet) -> None:
    written = yaml.safe_load((EXAMPLES / "cartpole" / "sweep.yaml").read_text("utf-8"))
    fleet.apply("cartpole.yaml")
    rows = fleet.results("sweep/cartpole")
    assert len(rows) == written["run_cap"]
    metric = written["metric"]["name"]
    assert metric == "train/roll/ep_rew/mean"
    assert all(row["params"]["population"] in (8, 16, 32) for row in rows)
    assert all(row["metric"] == {"name": metric, "value": row["result"][metric]} for row in rows)
    # What the program did is what its own command line said.
    assert [row["result"]["policies_tried"] for row in rows] == [
        row["params"]["population"] * row["params"]["generations"] for row in rows
    ]
    best = fleet.status("sweep/cartpole")["best"]
    assert best["metric"]["value"] > 400
    assert best["metric"]["value"] > 2 * rows[best["index"]]["result"]["first"]


PROGRAM = """import json, os
told = json.load(open(os.environ["FLEETCTL_PARAMS"]))
with open(os.environ["FLEETCTL_METRICS"], "a") as file:
    for _ in range(12):
        reward = told["n_steps"] * told["policy_lr"]
        file.write(json.dumps({"train/roll/ep_rew/mean": reward}) + chr(10))
"""


def test_the_wandb_sweep_of_a_repository_runs_in_workers_that_stay(
    fleet: Fleet, tmp_path: Path
) -> None:
    """Here, with a directory for the repository and a program that needs no packages."""
    (tmp_path / "train.py").write_text(PROGRAM, "utf-8")
    # Not through PyYAML, which takes `3e-5` for a text.
    _, _, sweep = (EXAMPLES / "sweep-wandb.yaml").read_text("utf-8").partition("\n---\n")
    for part in (r"    image:\n(      .*\n)+", r"    secrets: .*\n", r"    resources: .*\n"):
        sweep = re.sub(part, "", sweep)
    sweep = re.sub(r"git: \{.*\}", f"path: {tmp_path}", sweep)
    fleet.ok("apply", "-f", "-", "--wait", stdin=sweep)
    status = fleet.status("sweep/solver")
    # Trials of a moment may end before they are judged; another example shows whom it stops.
    assert status["succeeded"] + status.get("stopped", 0) == 50
    tasks = fleet.json("get", "tasks", "sweep/solver")["items"]
    assert len({it["status"]["sandbox"] for it in tasks}) < 50


def test_a_killed_training_goes_on_from_its_checkpoint(fleet: Fleet) -> None:
    fleet.apply("training.yaml")
    made, trained = fleet.results("tr/spirals")
    assert made["result"] == {"path": "/root/data/spirals.npz", "points": 800}
    assert (made["attempts"], trained["attempts"]) == (1, 2)
    assert trained["result"]["resumed_from"] == 200
    assert trained["result"]["accuracy"] > 0.98
    attempts = fleet.json("get", "attempts", "tr/spirals")["items"]
    killed = next(one for one in attempts if one["status"]["phase"] == "Failed")
    assert killed["metadata"]["index"] == 1
    assert killed["status"]["exitCode"] == 128 + 9
    kept = sorted(path.name for path in fleet.volume("skyrl-data").iterdir())
    assert kept == ["checkpoints", "spirals.npz"]


def test_the_interrupted_training_ends_exactly_like_one_that_was_left_alone(fleet: Fleet) -> None:
    fleet.apply("training.yaml")
    interrupted = fleet.results("tr/spirals")[1]["result"]
    manifest = yaml.safe_load((EXAMPLES / "training.yaml").read_text("utf-8"))
    manifest["metadata"]["name"] = "undisturbed"
    template = manifest["spec"]["template"]
    template["source"]["path"] = str(EXAMPLES / "training")
    template["volumes"][0]["name"] = "undisturbed-data"
    del template["env"]["CRASH_AT_STEP"]
    fleet.ok("apply", "-f", "-", "--wait", stdin=json.dumps(manifest))
    rows = fleet.results("tr/undisturbed")
    assert [row["attempts"] for row in rows] == [1, 1]
    assert rows[1]["result"] == {**interrupted, "resumed_from": 0}


def counted(fleet: Fleet, endpoint: str, calls: int) -> int:
    """Calls in its status once it has heard of so many: it hears of them twice a second."""
    until_s = time.monotonic() + HEARD_WAIT_S
    while (now := int(fleet.status(endpoint)["calls"])) < calls and time.monotonic() < until_s:
        pass
    return now


def test_tasks_ask_a_model_and_each_call_is_counted(fleet: Fleet, tmp_path: Path) -> None:
    """As the example says, but for where the server is, and that it wants a key, which no file of
    ours and no task ever holds.
    """
    key = tmp_path / "key"
    key.write_text("sk-canary-of-a-server")
    model = Model(slots=4, models=("llama3.2:3b",), key=key.read_text())
    text = (EXAMPLES / "endpoint.yaml").read_text("utf-8")
    assert "http://127.0.0.1:11434" in text
    with running(model):
        text = text.replace("http://127.0.0.1:11434", model.url)
        text = text.replace("  api: ollama\n", "  apiKey: {secret: key, name: KEY}\n")
        secret = {"fromFile": {"KEY": str(key)}}
        about = {"apiVersion": "fleetctl.dev/v1alpha1", "metadata": {"name": "key"}}
        text += "---\n" + json.dumps({**about, "kind": "Secret", "spec": secret})
        fleet.ok("apply", "-f", "-", "--wait", stdin=text)
        tips = [row["result"]["tips"] for row in fleet.results("job/tips")]
        assert tips[2] == [
            f"echo: One tip for {level} of chess, in a sentence."
            for level in ("beginners", "masters")
        ]
        assert counted(fleet, "endpoint/llama", 6) == len(model.asked) == 6
    files = [path for path in fleet.home.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if _holds(path, key.read_bytes())] == []


def _holds(path: Path, text: bytes) -> bool:
    """Returns whether a file holds the text; what a finished task leaves may go meanwhile."""
    try:
        return text in path.read_bytes()
    except FileNotFoundError:
        return False


def test_a_policy_is_trained_by_what_models_answer_at_once(fleet: Fleet) -> None:
    """As the example says, but for where the server is, and how many steps are made."""
    model = Model(slots=64, answer_s=0.01, models=("llama3.2:3b", "nomic-embed-text"))
    text = (EXAMPLES / "rl-batched.yaml").read_text("utf-8")
    with running(model):
        for here, there in (
            ("http://127.0.0.1:11434", model.url),
            ("--num-steps 32 --num-env-steps 10240", "--num-steps 4 --num-env-steps 128"),
            ("--num-env-steps=2048", "--num-steps=4, --num-env-steps=32, --compare-steps=0"),
            ("path: rl-batched}", f"path: {EXAMPLES / 'rl-batched'}}}"),
        ):
            assert here in text
            text = text.replace(here, there)
        fleet.ok("apply", "-f", "-", "--wait", stdin=text)
    (trained,) = fleet.results("tr/rewriting")
    assert (trained["result"]["updates"], trained["result"]["resumed_from"]) == (2, 0)
    assert model.most_at_once > 1
    kept = {path.name for path in fleet.volume("rl-batched").iterdir()}
    assert kept == {"checkpoints", "final_model.npz", "log.csv"}
    rows, best = (
        fleet.results("sweep/rewriting-rates"),
        fleet.status("sweep/rewriting-rates")["best"],
    )
    assert len(rows) == 6
    assert best["metric"]["value"] == max(row["result"]["reward"] for row in rows)
    asked = [one for one in model.asked if one["path"] == "/v1/chat/completions"]
    assert counted(fleet, "endpoint/rewriter", len(asked)) == len(asked) > 0


def test_applying_an_example_twice_runs_nothing_again(fleet: Fleet) -> None:
    fleet.apply("batch.yaml")
    before = fleet.json("get", "attempts", "job/parallel-tasks")
    assert "batchjob/parallel-tasks unchanged" in fleet.apply("batch.yaml")
    assert fleet.json("get", "attempts", "job/parallel-tasks") == before


def test_work_stays_within_the_limits_and_has_the_prices_of_a_provider(fleet: Fleet) -> None:
    fleet.apply("placement.yaml")
    assert [row["result"]["square"] for row in fleet.results("job/placed")] == [1, 4, 9, 16, 25, 36]
    provider = json.loads(fleet.ok("get", "provider/local", "-o", "json"))
    assert provider["status"]["slots"]["limit"] == 3
    job = json.loads(fleet.ok("get", "job/placed", "-o", "json"))
    assert job["status"]["cost"]["unpricedRuns"] == 0
    assert job["status"]["cost"]["actual"] > 0
    fleet.ok("delete", "provider/local")
