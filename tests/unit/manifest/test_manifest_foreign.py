"""Files of other tools keep their meaning: what each field becomes, and that nothing changes
silently.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest
import yaml

from fleetctl.common.errors import UsageError
from fleetctl.manifest.foreign import convert_text
from fleetctl.manifest.foreign.k8s_job import ContainerEnv, build_work


def made(format_: str, data: Any, **more: Any) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The manifests, and what was said."""
    several = data if isinstance(data, list) else [data]
    found = convert_text(format_, yaml.safe_dump_all(several), file="f.yaml", name="f", **more)
    return [dict(one) for one in found.manifests], found.notes


def only(format_: str, data: Any, **more: Any) -> dict[str, Any]:
    (one,) = made(format_, data, **more)[0]
    return one


def ran(template: dict[str, Any], **env: str) -> subprocess.CompletedProcess[str]:
    """What the work of a template prints on one node."""
    words = template.get("command") or ["sh", "-c", template["script"]]
    variables = {"PATH": os.environ["PATH"], **template.get("env", {}), **env}
    return subprocess.run(words, env=variables, capture_output=True, text=True, check=False)


def sky(**fields: Any) -> dict[str, Any]:
    return {"name": "t", "run": "true", **fields}


def dstack(*commands: str, **fields: Any) -> dict[str, Any]:
    return {"type": "task", "name": "t", "commands": list(commands or ["true"]), **fields}


def k8s(command: list[str], env: Any = (), **spec: Any) -> dict[str, Any]:
    container = {"name": "m", "image": "debian", "command": command, "env": list(env)}
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "t"},
        "spec": {**spec, "template": {"spec": pod}},
    }


# -- SkyPilot


@pytest.mark.parametrize("head", [[], [{"name": "chain"}]])
def test_tasks_of_one_file_wait_for_each_other(head: list[Any]) -> None:
    tasks = [sky(name="a"), sky(name="b", num_nodes=2), sky(name="c")]
    a, b, c = made("skypilot", [*head, *tasks])[0]
    assert "dependsOn" not in a["spec"]
    assert b["spec"]["dependsOn"] == [{"job": "a"}]
    assert c["spec"]["dependsOn"] == [{"trainingrun": "b"}]


def test_tasks_beside_each_other_do_not_wait() -> None:
    head = {"name": "group", "execution": "parallel"}
    _, b = made("skypilot", [head, sky(name="a"), sky(name="b")])[0]
    assert "dependsOn" not in b["spec"]


def test_tasks_of_one_name_become_objects_of_two() -> None:
    found = made("skypilot", [sky(name="a"), sky(name="a"), {"run": "true"}])[0]
    assert len({it["metadata"]["name"] for it in found}) == 3


@pytest.mark.parametrize(
    ("setup", "code"),
    [("false", 1), ("echo x\nfalse\n", 1), ("exit 7", 7), ("set -e\nfalse\ntrue", 1), ("true", 0)],
)
def test_a_setup_that_fails_ends_the_task(setup: str, code: int) -> None:
    done = ran(only("skypilot", sky(setup=setup, run="echo ran"))["spec"]["template"])
    assert done.returncode == code
    assert ("ran" in done.stdout) == (code == 0)


def test_secrets_come_from_the_environment_with_a_value_or_without() -> None:
    (secret, job), said = made("skypilot", sky(secrets={"A": None, "B": "value", "C": ""}))
    assert secret["spec"] == {"fromEnv": ["A", "B", "C"]}
    assert job["spec"]["template"]["secrets"] == [secret["metadata"]["name"]]
    assert any("secrets.B" in it for it in said) and "value" not in str([secret, job])


def test_the_first_choice_of_a_machine_is_made_and_the_others_are_said() -> None:
    choices = [{"infra": "aws", "accelerators": "H100:8"}, {"infra": "gcp", "accelerators": "A100"}]
    found, said = made("skypilot", sky(resources={"any_of": choices, "cpus": 4}))
    assert found[0]["spec"]["template"]["resources"] == {"cpu": 4, "gpu": "H100:8"}
    assert any("any_of[1]" in it for it in said)


def test_of_choices_that_will_all_do_one_is_made_whose_place_is_here() -> None:
    choices = [
        {"accelerators": "H100:8"},
        {"accelerators": "A100:8"},
        {"infra": "kubernetes", "accelerators": "L4:8"},
    ]
    found, said = made("skypilot", sky(resources={"any_of": choices}))
    spec = found[0]["spec"]
    assert spec["template"]["resources"] == {"gpu": "L4:8"}
    assert spec["placement"] == {"provider": "kubernetes"}
    assert [it.partition("`resources.")[2][:9] for it in said] == [
        f"any_of[{n}]" for n in (2, 0, 1)
    ]
    assert all(it.startswith("f.yaml:") for it in said)
    found, said = made("skypilot", sky(resources={"any_of": choices[:2]}))
    assert found[0]["spec"]["template"]["resources"] == {"gpu": "H100:8"}
    assert "any_of[1]` is left out: a sandbox has one sort of GPU" in said[-1]


def test_a_variable_that_must_be_given_comes_from_the_environment() -> None:
    (secret, job), said = made("skypilot", sky(envs={"A": None, "B": "x"}, secrets={"C": None}))
    assert secret["spec"] == {"fromEnv": ["A", "C"]}
    assert job["spec"]["template"]["env"] == {"B": "x"}
    assert job["spec"]["template"]["secrets"] == [secret["metadata"]["name"]]
    assert any("envs.A" in it for it in said)
    (secret, _), _ = made("skypilot", sky(envs={"A": None}))
    assert secret["spec"] == {"fromEnv": ["A"]}


@pytest.mark.parametrize(
    ("resources", "provider"),
    [
        ({"infra": "k8s/my-context"}, "kubernetes"),
        ({"cloud": "kubernetes"}, "kubernetes"),
        ({"any_of": [{"infra": "kubernetes", "cpus": 2}, {"infra": "aws"}]}, "kubernetes"),
        ({"any_of": [{"infra": "aws"}, {"infra": "kubernetes", "cpus": 2}]}, "kubernetes"),
        ({"ordered": [{"infra": "aws"}, {"infra": "kubernetes"}]}, None),
        ({"infra": "aws", "any_of": [{"cpus": 2}]}, None),
        ({"any_of": [{"cloud": "kubernetes", "region": "eu"}]}, None),
    ],
)
def test_kubernetes_is_a_place_here_too(resources: dict[str, Any], provider: str | None) -> None:
    found, said = made("skypilot", sky(resources=resources))
    placement = found[0]["spec"].get("placement")
    assert placement == (provider and {"provider": provider})
    if provider is None:
        assert any("placement" in it for it in said)


def test_skypilots_volumes_are_volumes() -> None:
    job = only("skypilot", sky(volumes={"/mnt/ck": "myvol"}))
    assert job["spec"]["template"]["volumes"] == [{"name": "myvol", "mountPath": "/mnt/ck"}]


def test_variables_of_nodes_are_set_from_ours() -> None:
    text = "echo $SKYPILOT_NUM_NODES $SKYPILOT_NODE_RANK ${SKYPILOT_NODE_IPS}"
    job = sky(run=f"{text} $SKYPILOT_NUM_GPUS_PER_NODE", resources={"accelerators": "L4:2"})
    template = only("skypilot", job)["spec"]["template"]
    assert ran(template).stdout.split() == ["1", "0", "127.0.0.1", "2"]
    ours = {"NNODES": "2", "NODE_RANK": "1", "FLEETCTL_NODE_IPS": "10.0.0.1\n10.0.0.2"}
    assert ran(template, **ours).stdout.split() == ["2", "1", "10.0.0.1", "10.0.0.2", "2"]


def test_all_old_names_stand_where_they_are_asked_for() -> None:
    plain = ran(only("skypilot", sky(run="env"))["spec"]["template"])
    every = ran(only("skypilot", sky(run="env"), old_names=True)["spec"]["template"])
    assert "SKYPILOT" not in plain.stdout
    assert {"SKYPILOT_NODE_RANK=0", "SKYPILOT_NUM_NODES=1"} <= set(every.stdout.split())


# -- dstack


@pytest.mark.parametrize("gpu", [0, "0", {"count": 0}, {"name": "H100", "count": 0}, "0..2"])
def test_no_gpu_is_none(gpu: Any) -> None:
    job = only("dstack", dstack(resources={"cpu": 2, "gpu": gpu}))
    assert job["spec"]["template"]["resources"] == {"cpu": 2}


@pytest.mark.parametrize(
    ("gpu", "ours"),
    [("H100:1..4", "H100:1"), ("1..8", "any:1"), ({"name": "A100", "count": "2.."}, "A100:2")],
)
def test_a_range_of_gpus_becomes_its_lower_end_and_is_said(gpu: Any, ours: str) -> None:
    found, said = made("dstack", dstack(resources={"gpu": gpu}))
    assert found[0]["spec"]["template"]["resources"] == {"gpu": ours}
    assert any("gpu" in it and "lower end" in it for it in said)


def test_dstacks_variables_of_nodes_are_set_from_ours() -> None:
    text = "echo $DSTACK_NODES_NUM $DSTACK_NODE_RANK $DSTACK_MASTER_NODE_IP $DSTACK_GPUS_PER_NODE"
    job = only("dstack", dstack(text + " $DSTACK_GPUS_NUM", nodes=2, resources={"gpu": "L4:3"}))
    assert (job["kind"], job["spec"]["nodes"]) == ("TrainingRun", 2)
    ours = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1"}
    assert ran(job["spec"]["template"], **ours).stdout.split() == ["2", "1", "10.0.0.1", "3", "6"]


def test_a_variable_that_is_not_set_here_is_said() -> None:
    assert any("DSTACK_REPO_ID" in it for it in made("dstack", dstack("echo $DSTACK_REPO_ID"))[1])


def test_secrets_in_commands_are_variables_of_a_secret_and_nothing_else_is_filled_in() -> None:
    commands = ("echo ${{ run.args }}x", "echo ${{ secrets.hf_token }} ${{ secrets.other-one }}")
    (secret, job), said = made("dstack", dstack(*commands, env=["HF=${{ secrets.hf_token }}"]))
    assert secret["spec"]["fromEnv"] == ["HF", "OTHER_ONE"]
    done = ran(job["spec"]["template"], HF="a", OTHER_ONE="b")
    assert (done.returncode, done.stdout.splitlines()) == (0, ["x", "a b"])
    assert any("run.args" in it for it in said)


def test_a_dstack_schedule_is_one() -> None:
    one = only("dstack", dstack("echo hi", schedule={"cron": "0 3 * * *"}, tags={"team": "ml"}))
    assert (one["kind"], one["spec"]["schedule"]) == ("Schedule", "0 3 * * *")
    assert one["spec"]["template"]["metadata"] == {"labels": {"team": "ml"}}
    assert ran(one["spec"]["template"]["spec"]["template"]).stdout == "hi\n"
    two = made("dstack", dstack(schedule={"cron": ["0 3 * * *", "0 5 * * *"]}))[0]
    assert [it["spec"]["schedule"] for it in two] == ["0 3 * * *", "0 5 * * *"]
    assert len({it["metadata"]["name"] for it in two}) == 2


# -- Kubernetes


def test_what_kubernetes_leaves_to_the_shell_stays_with_it() -> None:
    text = "echo cores=$(echo 4) who=$(echo me) url=$URL price=$PRICE $$(HOSTN) $(HOSTN)"
    env = [
        {"name": "HOSTN", "value": "db"},
        {"name": "URL", "value": "http://$(HOSTN):80"},
        {"name": "PRICE", "value": "$$5"},
        {"name": "LATER", "value": "$(AFTER) $$(HOSTN)"},
        {"name": "AFTER", "value": "x"},
    ]
    template = only("k8s-job", k8s(["/bin/sh", "-c", text], env))["spec"]["template"]
    assert template["env"]["LATER"] == "$(AFTER) $(HOSTN)"
    done = ran({**template, "command": [*template["command"][:2], "HOSTN() { echo fn; }; "
               + template["command"][2]]})  # fmt: skip
    assert done.stdout.split() == ["cores=4", "who=me", "url=http://db:80", "price=$5", "fn", "db"]


def test_what_is_known_when_it_runs_is_put_in_by_a_shell() -> None:
    secret = {"secretKeyRef": {"name": "pw", "key": "PW"}}
    env = [{"name": "PW", "valueFrom": secret}, {"name": "DSN", "value": "db://u:$(PW)@h"}]
    command = ["sh", "-c", 'echo "$0 $1"', "$(DSN)", "a $(JOB_COMPLETION_INDEX) '$x' $(nothing)"]
    job = k8s(command, env, completionMode="Indexed", completions=2)
    template = only("k8s-job", job)["spec"]["template"]
    assert template["secrets"] == ["pw"]
    done = ran(template, PW="it's", JOB_COMPLETION_INDEX="1")
    assert done.stdout == "db://u:it's@h a 1 '$x' $(nothing)\n"


def test_an_index_by_another_name_is_set() -> None:
    field = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    env = [{"name": "SHARD", "valueFrom": {"fieldRef": {"fieldPath": field}}}]
    job = k8s(["sh", "-c", "echo $SHARD"], env, completionMode="Indexed", completions=2)
    template = only("k8s-job", job)["spec"]["template"]
    assert ran(template, JOB_COMPLETION_INDEX="1").stdout == "1\n"


def test_only_a_job_with_indexes_has_one_to_put_in() -> None:
    template = only("k8s-job", k8s(["echo", "$(JOB_COMPLETION_INDEX)"]))["spec"]["template"]
    assert ran(template, JOB_COMPLETION_INDEX="1").stdout == "$(JOB_COMPLETION_INDEX)\n"


@pytest.mark.parametrize(
    ("text", "is_"),
    [("$$(A)", "$(A)"), ("$$$(A)", "$x"), ("$$5", "$5"), ("$5 $", "$5 $"), ("$(A", "$(A"),
     ("$()", "$()"), ("$(B)", "$(B)"), ("", "")],
)  # fmt: skip
def test_references_follow_kubernetes_rule(text: str, is_: str) -> None:
    variables = ContainerEnv([])
    variables.add("A", "x")
    template, _ = build_work(["printf", "%s", text], variables)
    assert ran(template).stdout == is_


def test_a_cron_job_is_a_schedule() -> None:
    job = k8s(["echo", "hi"])["spec"]
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {
            "schedule": "0 3 * * *", "timeZone": "Europe/Berlin", "concurrencyPolicy": "Forbid",
            "suspend": True, "startingDeadlineSeconds": 60, "successfulJobsHistoryLimit": 5,
            "failedJobsHistoryLimit": 0, "jobTemplate": {"spec": job},
        },
    }  # fmt: skip
    (one,), said = made("k8s-job", cron)
    spec = one["spec"]
    template = spec.pop("template")
    assert (one["kind"], template["kind"]) == ("Schedule", "BatchJob")
    assert spec == {key: it for key, it in cron["spec"].items() if key != "jobTemplate"}  # type: ignore[attr-defined]
    assert not said


def test_pods_of_a_work_queue_are_as_many_tasks() -> None:
    (one,), said = made("k8s-job", k8s(["true"], parallelism=3))
    assert (one["spec"]["completions"], one["spec"]["parallelism"]) == (3, 3)
    assert any("completions" in it for it in said)


# -- all of them


def test_what_is_said_names_the_line() -> None:
    text = "name: t\nresources:\n  ports: 80\nrun: |\n  true\nstrange: 1\n---\nrun: x\nodd: 1\n"
    said = convert_text("skypilot", text, file="f.yaml", name="f").notes
    assert [it.partition(" ")[0] for it in said] == ["f.yaml:3:", "f.yaml:6:", "f.yaml:9:"]
    nested = "method: grid\nparameters:\n  a: {values: [1]}\nprogram: a.py\nodd: 2\n"
    said = convert_text("wandb", nested, file="s.yaml", name="f").notes
    assert any(it.startswith("s.yaml:5: `odd`") for it in said)


def test_a_setup_alone_is_no_task() -> None:
    with pytest.raises(UsageError, match="`run` is missing"):
        made("skypilot", {"setup": "x"})
