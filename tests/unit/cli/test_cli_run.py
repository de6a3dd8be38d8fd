"""`run` without a file: what it makes of flags, what goes along, whose exit code it has."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from fleetctl.cli.apply.runs.run_manifest import files_named, name_of
from fleetctl.cli.apply.runs.work_flags import write_as_flags
from fleetctl.cli.follow import progress
from fleetctl.cli.follow.logs_follow import TaskOutput
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.daemon.client.spawn import ControllerSupervision
from fleetctl.stores.sqlite.store import open_store
from tests.cli_controller import controller


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("print('hi')\n")
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(project)
    return tmp_path / "home"


def fleetctl(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def manifest(*words: str) -> dict[str, object]:
    code, out, talk = fleetctl("run", "-o", "yaml", "--name", "x", *words)
    assert code == 0, talk
    made: dict[str, object] = yaml.safe_load(out)
    return made


def ended(home: Path, state: RunState, code: int, said: str) -> Callable[[bytes], bytes]:
    """A controller that stores what it is sent as an object whose one task ended like that."""

    def respond(line: bytes) -> bytes:
        (document,) = json.loads(line)["documents"]
        made = yaml.safe_load(document["text"])
        phase = "Succeeded" if state is RunState.SUCCEEDED else "Failed"
        status = {"phase": phase, "observedGeneration": 1, "total": 1, "message": "it ended"}
        store = open_store(home, SystemClock())
        with store.transaction():
            uid, name = "u1", made["metadata"]["name"]
            row = Resource(
                uid=uid, kind="BatchJob", name=name, generation=1, version=0,
                spec=json.dumps(made["spec"]), status="", labels={}, annotations={},
                created_at_s=1.0, deleted_at_s=None,
            )  # fmt: skip
            stored = store.resources.put(row, expected_version=None)
            store.resources.put_status(uid, json.dumps(status), expected_version=stored.version)
            run = Run(
                name="r1", uid=uid, index=0, attempt=1, state=RunState.STARTING, provider="local",
                sandbox="r1", template_hash="t", params="{}", params_hash="p", created_at_s=1.0,
            )  # fmt: skip
            store.runs.begin([run])
            done = replace(
                run, state=state, exit_code=code, reason="ItBroke", started_at_s=1.0, ended_at_s=2.0
            )
            assert store.runs.advance(done, result=None, metrics=(), saved=())
        store.close()
        log = home / "local" / "jobs" / uid / "runs" / "r1.log"
        log.parent.mkdir(parents=True)
        log.write_text(said)
        result = {"key": f"batchjob/{name}", "outcome": "created", "message": "1 task"}
        return json.dumps({"ok": True, "results": [result]}).encode() + b"\n"

    return respond


def test_flags_are_the_fields_of_a_manifest(home: Path) -> None:
    Path("requirements.txt").write_text("numpy\n")
    made = manifest(
        "--gpu", "A100", "--on", "modal", "--cpu", "2", "--memory", "4Gi", "--pip", "numpy",
        "--pip", "-r requirements.txt", "--python", "3.12", "--env", "A=b=c", "--env", "EMPTY=",
        "--volume", "data:/data", "--timeout", "2h", "--retries", "2", "--budget", "5",
        "--secret", "hf", "--set", "template.resources.disk=50Gi", "--watch",
        "--no-source", "--", "python", "train.py", "--lr", "3",
    )  # fmt: skip
    assert made["spec"] == {
        "placement": {"provider": "modal"},
        "backoffLimitPerIndex": 2,
        "budget": {"maxCost": 5.0},
        "template": {
            "command": ["python", "train.py", "--lr", "3"],
            "image": {"python": "3.12", "pip": ["numpy", "-r requirements.txt"]},
            "resources": {"gpu": "A100", "cpu": 2, "memory": "4Gi", "disk": "50Gi"},
            "env": {"A": "b=c", "EMPTY": ""},
            "secrets": ["hf"],
            "volumes": [{"name": "data", "mountPath": "/data"}],
            "timeoutSeconds": "2h",
        },
    }
    assert not home.exists()


@pytest.mark.parametrize(
    ("state", "code", "exits"),
    [(RunState.SUCCEEDED, 0, 0), (RunState.FAILED, 7, 7), (RunState.FAILED, 0, 1)],
)
def test_its_output_is_ours_and_so_is_its_exit_code(
    home: Path, state: RunState, code: int, exits: int
) -> None:
    with controller(home, ended(home, state, code, "what it said\n")) as asked:
        found, out, talk = fleetctl("run", "--gpu", "A100", "--", "python", "train.py")
    assert (found, out) == (exits, "what it said\n")
    assert ("error: batchjob/train-" in talk and ": ItBroke" in talk) == (exits > 0)
    (document,) = json.loads(asked[0])["documents"]
    sent = yaml.safe_load(document["text"])
    assert sent["spec"]["template"]["source"] == {"path": "."}
    assert document["dir"] == str(Path.cwd())
    assert f"fleetctl get batchjob/{sent['metadata']['name']} -o yaml" in talk
    assert "this directory goes along: 1 file, 12 B" in talk


def waiting(home: Path, status: dict[str, object]) -> Callable[[bytes], bytes]:
    """A controller that stores what it is sent as an object that has not begun."""

    def respond(line: bytes) -> bytes:
        store = open_store(home, SystemClock())
        with store.transaction():
            row = Resource(
                uid="u1", kind="BatchJob", name="mine", generation=1, version=0, spec="{}",
                status="", labels={}, annotations={}, created_at_s=1.0, deleted_at_s=None,
                namespace=str(json.loads(line).get("namespace", "default")),
            )  # fmt: skip
            stored = store.resources.put(row, expected_version=None)
            text = json.dumps({"phase": "Pending", "observedGeneration": 1, "total": 1, **status})
            store.resources.put_status("u1", text, expected_version=stored.version)
        store.close()
        result = {"key": "batchjob/mine", "outcome": "created", "message": "1 task"}
        return json.dumps({"ok": True, "results": [result]}).encode() + b"\n"

    return respond


def test_what_nothing_can_get_on_ends_with_what_would_help(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "STUCK_S", 0.0)
    monkeypatch.setattr(ControllerSupervision, "check", lambda _: None)
    stuck = {"lack": "capacity", "reason": "NoCapacity", "message": "no A100", "hint": "rent one"}
    with controller(home, waiting(home, {"stuck": stuck})):
        code, out, talk = fleetctl("run", "--name", "mine", "--", "python", "train.py")
    assert (code, out) == (1, "")
    assert "batchjob/mine cannot go on by itself: NoCapacity: no A100\nhint: rent one" in talk


def test_ctrl_c_leaves_it_running_and_says_how_to_come_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TaskOutput, "show", interrupted)
    monkeypatch.setattr(ControllerSupervision, "check", lambda _: None)
    with controller(home, waiting(home, {})):
        code, _, talk = fleetctl("run", "-n", "team", "--name", "mine", "--", "python", "train.py")
    assert code == 130
    assert "hint: its manifest: fleetctl get batchjob/mine -n team -o yaml" in talk
    assert "hint: come back: fleetctl logs batchjob/mine -n team -f" in talk
    assert "hint: cancel: fleetctl delete" in talk


def test_detached_it_prints_the_object_alone(home: Path) -> None:
    with controller(home, ended(home, RunState.FAILED, 7, "")):
        found, out, talk = fleetctl("run", "-d", "--name", "mine", "--", "python", "train.py")
    assert (found, out) == (0, "batchjob/mine\n")
    assert "fleetctl logs batchjob/mine -f" in talk


def test_an_object_that_is_there_is_not_changed(home: Path) -> None:
    with controller(home, ended(home, RunState.SUCCEEDED, 0, "")) as asked:
        fleetctl("run", "-d", "--name", "mine", "--", "python", "train.py")
        code, _, talk = fleetctl("run", "--name", "mine", "--", "python", "other.py")
    assert (code, len(asked)) == (3, 1)
    assert "batchjob/mine is there already" in talk
    assert "fleetctl rerun batchjob/mine" in talk


def test_a_run_of_a_file_has_the_name_that_a_person_gives(home: Path, tmp_path: Path) -> None:
    manifest = {"kind": "BatchJob", "name": "nightly", "command": ["python", "train.py"]}
    (tmp_path / "job.yaml").write_text(json.dumps(manifest))
    words = ["run", str(tmp_path / "job.yaml"), "--name", "mine", "-o", "json", "--", "ls"]
    code, out, _ = fleetctl(*words)
    made = json.loads(out)
    assert (code, made["kind"], made["metadata"]["name"]) == (0, "TrainingRun", "mine")
    assert made["spec"]["template"]["command"] == ["ls"]
    words[3] = "A_b"
    code, _, talk = fleetctl(*words)
    assert code == 2 and "--name is 'A_b'; a name must be" in talk, talk


def test_errors_name_flags_and_not_a_manifest_that_nobody_wrote(home: Path) -> None:
    words = ("--dry-run", "--name", "x", "--", "python", "train.py")
    code, _, talk = fleetctl("run", "--on", "modall", "--secret", "nope", *words)
    assert code == 2
    assert "error: --on is `modall`, and there is no such provider\nhint: did you mean" in talk
    assert "error: --secret is `nope`, and there is no Secret" in talk
    code, _, talk = fleetctl("run", "--gpu", "Z9", "--on", "modal", *words)
    assert "error: --gpu is `Z9`, which Modal does not have\nhint: it has T4" in talk
    assert "command line" not in talk
    text = "command line:3:1: spec.template.env.A is wrong\nerror: command line: spec.seed is"
    assert write_as_flags(text) == "--env is wrong\nerror: spec.seed is"


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["python", "train.py"], ["train.py"]),
        (["python", "-m", "pkg.work"], ["pkg/work.py"]),
        (["python", "x.py", "--config=conf/a.yaml", "conf"], ["conf/a.yaml", "conf"]),
        (["./train.py"], ["train.py"]),
        (["conf"], []),
        (["ls", ".", "..", "../project/train.py", "/etc/passwd"], []),
        (["python", "-c", "print('train.py')" * 99], []),
    ],
)
def test_files_that_a_command_names(home: Path, command: Sequence[str], named: list[str]) -> None:
    for path in ("conf/a.yaml", "pkg/work.py"):
        Path(path).parent.mkdir()
        Path(path).touch()
    assert [str(it.path) for it in files_named(command, Path.cwd())] == named


def test_a_directory_goes_along_only_where_a_file_of_it_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, talk = fleetctl("run", "-o", "yaml", "--", "nvidia-smi")
    assert code == 0
    assert "source" not in yaml.safe_load(out)["spec"]["template"]
    assert "no files go along: the command names none here (`--source .` takes them)" in talk
    Path(".gitignore").write_text("*.bin\n")
    Path("a.bin").write_text("x" * 5000)
    _, _, talk = fleetctl("run", "-o", "yaml", "--", "python", "train.py", "a.bin")
    assert "2 files, 18 B" in talk
    assert "warning: `a.bin` stays here: an ignore file leaves it out" in talk
    code, _, talk = fleetctl("run", "--source", "gone", "--", "python", "train.py")
    assert (code, "--source: there is no directory `gone`" in talk) == (4, True)
    monkeypatch.setenv("HOME", str(Path.cwd()))
    code, _, talk = fleetctl("run", "--", "python", "train.py")
    assert code == 3
    assert "would go along" in talk
    assert not home.exists()


def test_names_are_new_and_after_the_program(home: Path) -> None:
    assert name_of(["python", "train.py"])[:-4] == "train-"
    assert name_of(["/usr/bin/Nvidia_SMI"])[:-4] == "nvidia-smi-"
    assert name_of(["./_"])[:-4] == "run-"
    assert len(name_of(["x" * 200])) == 63
    assert len({name_of(["ls"]) for _ in range(8)}) > 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["python", "a b.py"], "hint: write it after `--`: fleetctl run -- python 'a b.py'"),
        (["job.yaml"], "hint: to run what it declares: fleetctl apply -f job.yaml --wait; "),
        (["job.yaml"], "to run another command as its work runs: fleetctl run job.yaml -- COMMAND"),
        (["job.yaml", "--gpu", "A100", "--", "ls"], "--gpu replaces a file"),
        (["--stage", "a", "--", "ls"], "--stage is about a file, and there is none"),
        (["a.yaml", "b.yaml", "--", "ls"], "unexpected argument `b.yaml`"),
        (["--volume", "data", "--", "ls"], "`data` is not NAME:/PATH"),
        (["--name", "A_b", "--dry-run", "--", "ls"], "--name is `A_b`"),
        (["--", "echo hi; exit 3"], "hint: write `sh -c 'echo hi; exit 3'`"),
        (["--", "echo", "a: b", "|", "cat"], "hint: write `sh -c 'echo a: b | cat'`"),
        (["--name", "a/b", "--dry-run", "--", "ls"], "--name is `a/b`"),
    ],
)
def test_words_that_do_not_go_together(home: Path, words: list[str], said: str) -> None:
    code, _, talk = fleetctl("run", *words)
    assert (code, said in talk) == (2, True), talk


def test_nodes_make_a_training_run(home: Path) -> None:
    words = ("--nodes", "2", "--retries", "1", "--name", "x", "-o", "json", "--", "torchrun", "a")
    code, out, _ = fleetctl("run", *words)
    made = json.loads(out)
    assert (code, made["kind"]) == (0, "TrainingRun")
    assert made["spec"] == {
        "nodes": 2,
        "maxRestarts": 1,
        "template": {"command": ["torchrun", "a"]},
    }
    code, _, talk = fleetctl("run", "--nodes", "0", "--dry-run", "--", "true")
    assert code == 2 and "error: --nodes is `0`" in talk
    code, _, talk = fleetctl("run", "--nodes", "2", "--each", "-", "--", "true")
    assert code == 2 and "`--nodes` and `--each` do not go together" in talk


def test_a_secret_is_an_object_or_a_variable(home: Path) -> None:
    words = ("--secret", "hf", "--secret", "HF_TOKEN", "--name", "x", "-o", "json", "--", "true")
    _, out, _ = fleetctl("run", *words)
    job, secret = json.loads(out)["items"]
    assert job["spec"]["template"]["secrets"] == ["hf", "env-hf-token"]
    assert secret["spec"] == {"fromEnv": ["HF_TOKEN"]}
