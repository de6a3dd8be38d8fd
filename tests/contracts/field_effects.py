"""The table of effects, beside the content table `specs/content.py`: for each field that a guest or
a provider carries out, the test that observes its effect there, or the manifest that is refused
before it is stored. test_field_effects.py fails for a field without its row.

A new field of the template needs a row here and a test in `provider_fields.py`, which runs on every
provider; a provider that cannot carry it out refuses it in its `*_preflight.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.contracts.provider_bare import WithoutPython
from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.test_provider_daytona import TestDaytona, TestDaytonaWithoutPython
from tests.contracts.test_provider_kubernetes import TestKubernetes, TestKubernetesWithoutPython
from tests.contracts.test_provider_local import TestNamespaces, TestProcess
from tests.contracts.test_provider_modal import TestModal, TestModalWithoutPython, TestOlderBackend
from tests.contracts.test_provider_modal_functions import TestModalFunctions
from tests.contracts.test_provider_slurm import TestSlurm
from tests.contracts.test_provider_ssh import TestSsh

LOCAL, MODAL, DAYTONA, KUBERNETES = "local", "modal", "daytona", "kubernetes"
SSH, SLURM = "ssh", "slurm"
FUNCTIONS = "functions of modal"
BARE = "the guest without Python"
# The suites of each way to carry out a template.
SUITES: Mapping[str, tuple[type[ProviderSuite] | type[WithoutPython], ...]] = {
    LOCAL: (TestNamespaces, TestProcess),
    MODAL: (TestModal, TestOlderBackend),
    FUNCTIONS: (TestModalFunctions,),
    DAYTONA: (TestDaytona,),
    KUBERNETES: (TestKubernetes,),
    SSH: (TestSsh,),
    SLURM: (TestSlurm,),
    BARE: (TestModalWithoutPython, TestDaytonaWithoutPython, TestKubernetesWithoutPython),
}


@dataclass(frozen=True, slots=True)
class SeenElsewhere:
    """A test outside of the suites that observes the effect. path: of its file; name: its own."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class RefusedBefore:
    """A template that `validate` refuses there. says: a part of the message. more: fields of the
    spec beside the template.
    """

    template: Mapping[str, Any]
    says: str
    kind: str = "BatchJob"
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BecomesTemplate:
    """A field of a kind that sets one of the template, whose own row has its effect. value: of a
    manifest. more: further fields beside it that the effect needs.
    """

    field: str
    value: Any
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeftToAnother:
    """A reason why this guest or provider never meets the field."""

    reason: str


Effect = str | SeenElsewhere | RefusedBefore | LeftToAnother | BecomesTemplate


@dataclass(frozen=True, slots=True)
class FieldEffect:
    """seen_by: a test of the suite, for each provider and guest that has no entry of its own."""

    seen_by: Effect
    but: Mapping[str, Effect]


def _row(seen_by: Effect, **but: Effect) -> FieldEffect:
    names = {"functions": FUNCTIONS, "bare": BARE}
    return FieldEffect(seen_by, {names.get(name, name): it for name, it in but.items()})


OTHER_GUEST = LeftToAnother("work that needs Python beside it has the guest in Python everywhere")
ANY_GUEST = LeftToAnother("the provider does it, whatever guest it brings")
WORK = {"script": "true"}
CALLED = {**WORK, "runtime": "function"}
PODS = {"podLabels": {"team": "vision"}}
ASKED = {"prompt": {"endpoint": "small", "text": "hi"}}


def _alone(words: str, *providers: str, **template: Any) -> dict[str, Effect]:
    """Entries of providers that refuse a field."""
    refused = RefusedBefore({**WORK, **template}, words)
    return dict.fromkeys(providers, refused)


FUNCTION_CALLS = "tests/servers/test_modal_functions_fleets.py"
ASKING = "tests/unit/providers/endpoint/test_prompt_asking.py"
MANIFESTS = "tests/unit/providers/kubernetes/test_kubernetes_manifests.py"
GANGS = "tests/unit/providers/kubernetes/test_kubernetes_gangs.py"

TEMPLATE: Mapping[str, FieldEffect] = {
    "image": _row("test_a_task_has_the_variables_of_its_image"),
    "source": _row("test_all_that_a_directory_holds_comes_to_the_task"),
    "resources": _row(
        "test_a_machine_has_the_resources_of_its_template",
        functions=SeenElsewhere(
            FUNCTION_CALLS, "test_a_list_of_gpus_falls_back_to_the_next_that_is_free"
        ),
        bare=ANY_GUEST,
    ),
    "env": _row("test_a_task_has_the_variables_of_its_template"),
    "secrets": _row("test_a_task_has_the_values_of_its_secrets"),
    "volumes": _row("test_a_volume_brings_what_an_earlier_task_left"),
    "python": _row("test_a_run_is_seen_alive_and_then_ended_with_its_result", bare=OTHER_GUEST),
    "command": _row("test_a_command_gets_its_arguments_as_they_are"),
    "script": _row("test_a_script_is_read_by_a_shell"),
    "network": _row(
        "test_a_task_reaches_the_hosts_of_its_network_alone",
        bare=ANY_GUEST,
        functions=RefusedBefore({**CALLED, "network": {}}, "network of a function's containers"),
        **_alone("does not restrict a task's network", LOCAL, KUBERNETES, SSH, SLURM, network={}),
    ),
    "endpoints": _row(
        "test_a_task_calls_the_gateway_of_its_endpoints",
        bare=OTHER_GUEST,
        functions=RefusedBefore(
            {**CALLED, "endpoints": ["small"]}, "a function's containers cannot ask endpoint"
        ),
        **_alone("carries no calls of endpoints", SLURM, endpoints=["small"]),
    ),
    "prompt": _row(
        RefusedBefore(ASKED, "names another provider than the prompt's endpoint"),
        functions=RefusedBefore({**ASKED, "runtime": "function"}, "a prompt has no sandbox"),
        bare=LeftToAnother("a prompt has no sandbox"),
    ),
    "runtime": _row(
        RefusedBefore(CALLED, "spec.template.runtime: "),
        modal=LeftToAnother("its functions have a suite of their own"),
        functions=SeenElsewhere(
            FUNCTION_CALLS, "test_hundreds_of_tasks_run_in_a_few_warm_containers"
        ),
        local=SeenElsewhere(
            "tests/unit/providers/test_local_isolation.py",
            "test_a_run_tells_which_of_a_list_it_got",
        ),
        bare=OTHER_GUEST,
    ),
    "function": _row(
        LeftToAnother("it stands for the fields of its Function, each with its own row"),
        functions=SeenElsewhere(
            FUNCTION_CALLS, "test_the_tasks_of_a_function_see_its_volumes_secrets_and_source"
        ),
    ),
    "timeout_seconds": _row("test_a_run_that_takes_too_long_has_its_grace"),
    "termination_grace_period_seconds": _row("test_a_run_that_takes_too_long_has_its_grace"),
    "workdir": _row("test_a_task_begins_in_its_workdir"),
    "services": _row("test_a_service_is_ready_before_the_work_and_gone_after_it", bare=OTHER_GUEST),
    "kubernetes": _row(
        RefusedBefore({**WORK, "kubernetes": PODS}, "has no pods"),
        kubernetes="test_a_pod_has_the_settings_of_its_template",
        functions=RefusedBefore({**CALLED, "kubernetes": PODS}, "has no pods"),
        bare=ANY_GUEST,
    ),
    "outputs": _row("test_the_outputs_of_an_attempt_are_kept_with_it", bare=OTHER_GUEST),
    "metrics": _row("test_what_a_program_prints_is_a_metric_while_it_runs", bare=OTHER_GUEST),
}

# Modal and this machine get one size for work and services together; no task can read it there.
SIZES = SeenElsewhere(
    "tests/unit/manifest/test_manifest_services.py",
    "test_a_sandbox_has_room_for_its_services_beside_the_work",
)
SERVICE: Mapping[str, FieldEffect] = {
    **dict.fromkeys(
        ("name", "command", "env", "ready"),
        _row("test_a_service_is_ready_before_the_work_and_gone_after_it", bare=OTHER_GUEST),
    ),
    **dict.fromkeys(
        ("script", "on_exit"),
        _row("test_the_end_of_a_service_has_the_effect_that_is_given", bare=OTHER_GUEST),
    ),
    "resources": _row(
        "test_a_machine_has_room_for_its_services",
        local=SIZES,
        modal=SIZES,
        functions=SIZES,
        bare=OTHER_GUEST,
    ),
}

# Of `prompt`, which only an endpoint carries out.
_ROW = SeenElsewhere(
    "tests/unit/providers/endpoint/test_prompt_runs.py", "test_a_row_is_asked_as_its_prompt_states"
)
PROMPT: Mapping[str, SeenElsewhere] = {
    **dict.fromkeys(
        ("endpoint", "model", "text", "messages", "system", "parameters", "mode"), _ROW
    ),
    "answer": SeenElsewhere(ASKING, "test_an_answer_that_matches_is_taken_as_a_value"),
}

# Of `kubernetes`, which only a cluster carries out.
_SHAPED = SeenElsewhere(
    MANIFESTS, "test_an_object_shapes_its_pods_over_what_the_provider_object_says"
)
_OF_THE_ACCOUNT = SeenElsewhere(MANIFESTS, "test_what_a_provider_object_says_is_in_the_pod")
POD: Mapping[str, SeenElsewhere] = {
    **dict.fromkeys(
        (
            "priority_class",
            "node_selector",
            "affinity",
            "topology_spread",
            "tolerations",
            "pod_labels",
            "pod_annotations",
            "security_context",
            "container_security_context",
            "requests",
            "extra_resources",
            "config_maps",
            "secrets",
            "init_containers",
            "resource_claims",
        ),
        _SHAPED,
    ),
    **dict.fromkeys(
        ("service_account", "kueue_queue", "runtime_class", "image_pull_secrets"), _OF_THE_ACCOUNT
    ),
    "shared_memory": SeenElsewhere(
        GANGS, "test_shared_memory_has_a_limit_and_is_no_more_than_the_task_may_have"
    ),
    "pod_template": SeenElsewhere(
        MANIFESTS, "test_a_patch_of_the_pod_is_laid_over_it_and_its_marks_stay_ours"
    ),
}

# Of each running kind, which the engine carries out for every provider alike.
_RECONCILE = "tests/unit/controllers/test_controllers_reconcile.py"
_BATCHJOB = "tests/unit/controllers/test_controllers_batchjob.py"
_CHANGES = "tests/unit/controllers/test_controllers_changes.py"
_QUEUES = "tests/unit/engine/test_engine_queues.py"
_DEPENDENCIES = "tests/unit/engine/test_engine_dependencies.py"
RUN = "TrainingRun"


def _refused(says: str, **more: Any) -> dict[str, Effect]:
    """An entry of TrainingRun, which refuses a field."""
    return {RUN: RefusedBefore(WORK, says, RUN, more)}


EXECUTION: Mapping[str, FieldEffect] = {
    name: FieldEffect(SeenElsewhere(path, test), but)
    for name, path, test, but in (
        (
            "parallelism", _RECONCILE,
            "test_a_new_job_starts_its_tasks_in_order_up_to_parallelism", {},
        ),
        ("suspend", _RECONCILE, "test_a_suspended_job_stops_its_runs_and_starts_none", {}),
        (
            "active_deadline_seconds", _RECONCILE,
            "test_the_deadline_ends_the_whole_and_stops_what_runs", {},
        ),
        (
            "ttl_seconds_after_finished", "tests/unit/engine/test_engine_loop.py",
            "test_scratch_is_freed_after_its_time_across_a_restart_and_only_once", {},
        ),
        (
            "backoff_limit_per_index", _RECONCILE,
            "test_a_task_that_failed_too_often_is_given_up_and_the_others_go_on",
            _refused("write `maxRestarts: 3`", backoffLimitPerIndex=3),
        ),
        (
            "backoff_limit", _BATCHJOB,
            "test_the_backoff_limit_counts_failures_of_all_tasks_together", {},
        ),
        (
            "max_infra_retries", _RECONCILE,
            "test_infrastructure_failures_have_a_count_and_a_cap_of_their_own", {},
        ),
        (
            "max_failed_indexes", _BATCHJOB,
            "test_too_many_failed_tasks_end_the_job_and_stop_the_rest",
            _refused("the first stage that fails for good ends the run", maxFailedIndexes=1),
        ),
        (
            "retry", _RECONCILE,
            "test_a_failed_task_waits_for_its_backoff_and_says_how_long", {},
        ),
        (
            "seed", "tests/unit/controllers/test_controllers_retry.py",
            "test_the_same_seed_gives_the_same_wait_and_another_seed_another", {},
        ),
        (
            "placement", "tests/unit/engine/test_engine_placement.py",
            "test_work_runs_over_when_the_first_place_is_at_its_limit", {},
        ),
        (
            "rollout", _CHANGES,
            "test_finish_running_leaves_live_runs_alone_and_starts_the_rest_anew", {},
        ),
        (
            "on_change", _CHANGES,
            "test_on_change_keep_counts_outdated_tasks_and_says_how_many", {},
        ),
        (
            "queue", _QUEUES,
            "test_a_queue_lets_as_much_start_as_its_quota_and_the_rest_waits_in_line", {},
        ),
        (
            "priority", _QUEUES,
            "test_a_higher_priority_goes_first_and_stops_nobody_unless_the_queue_says_so", {},
        ),
        (
            "success_policy", _BATCHJOB,
            "test_enough_successes_end_the_job_early_and_stop_the_rest", {},
        ),
        ("failure_policy", _BATCHJOB, "test_fail_job_ends_everything_at_the_first_match", {}),
        (
            "sandbox", _CHANGES,
            "test_a_sandbox_is_used_again_as_often_as_allowed_and_then_replaced",
            _refused("2 nodes end together", nodes=2, sandbox={"reuse": 3}),
        ),
        (
            "budget", "tests/unit/engine/test_engine_budgets.py",
            "test_no_more_starts_than_the_budget_can_pay_at_worst", {},
        ),
        (
            "cache", "tests/unit/engine/test_engine_caching.py",
            "test_the_policy_never_gives_nothing_and_takes_nothing", {},
        ),
        (
            "depends_on", _DEPENDENCIES,
            "test_it_waits_says_on_whom_and_begins_at_once_when_that_has_succeeded", {},
        ),
        (
            "on_dependency_failed", _DEPENDENCIES,
            "test_a_failed_dependency_fails_it_and_skips_what_says_so_and_all_behind_that", {},
        ),
        (
            "notify", "tests/unit/engine/test_engine_notices.py",
            "test_who_asked_for_it_hears_of_an_end_with_names_counts_and_a_signature", {},
        ),
    )
}  # fmt: skip

# Of `checkpoint`, which the guest in Python carries out. Work with one has that guest everywhere.
_CASE_6 = "test_case_6_a_killed_program_goes_on_from_the_newest_complete_checkpoint"
_GUEST = "tests/unit/guest/checkpoints"
_FUNCTIONS_DO_NOT = "does not manage the checkpoints of a function"


def _checkpoint(seen_by: Effect, **asked: Any) -> FieldEffect:
    """Returns the row of a field that a function's containers refuse. asked: its value."""
    checkpoint = {"path": "/ckpt", **asked}
    volumes = [{"name": "ckpt", "mountPath": "/ckpt"}]
    called = {"command": ["train"], "runtime": "function", "volumes": volumes}
    refused = RefusedBefore(called, _FUNCTIONS_DO_NOT, RUN, {"checkpoint": checkpoint})
    return _row(seen_by, functions=refused, bare=OTHER_GUEST)


CHECKPOINT: Mapping[str, FieldEffect] = {
    "path": _row(_CASE_6, bare=OTHER_GUEST),
    "resume": _checkpoint(_CASE_6, resume="step:7"),
    "resume_args": _checkpoint(_CASE_6, resumeArgs=["--from", "${checkpoint}"]),
    "keep": _checkpoint("test_checkpoints_that_are_not_to_be_kept_are_removed", keep={"last": 1}),
    "format": _checkpoint(
        SeenElsewhere(
            f"{_GUEST}/test_prepare.py", "test_with_a_named_format_the_first_one_may_be_unfinished"
        ),
        format="orbax",
    ),
    "verify": _checkpoint(
        SeenElsewhere(
            f"{_GUEST}/test_prepare.py",
            "test_the_hash_of_a_large_file_is_looked_at_where_that_is_asked_for",
        ),
        verify="Full",
    ),
    "mirror": _checkpoint(
        SeenElsewhere(
            f"{_GUEST}/test_checkpoint_mirror.py",
            "test_a_checkpoint_is_copied_whole_and_its_listing_comes_last",
        ),
        mirror="s3://bucket/run",
    ),
    "signal_before_stop_seconds": FieldEffect(
        BecomesTemplate("termination_grace_period_seconds", 120), {}
    ),
}

# Of each entry of `stages`.
_GROUPS = "tests/training/test_groups_local.py"
_STAGES = "tests/unit/controllers/test_controllers_trainingrun.py"
STAGE: Mapping[str, Effect] = {
    "name": SeenElsewhere(
        "tests/unit/engine/test_engine_stages.py", "test_events_call_a_stage_by_its_name"
    ),
    "python": BecomesTemplate("python", "SUBMIT(a=1)"),
    "command": BecomesTemplate("command", ["train", "--fast"]),
    "script": BecomesTemplate("script", "exit 3"),
    "env": BecomesTemplate("env", {"A": "b"}),
    "timeout_seconds": BecomesTemplate("timeout_seconds", 60),
    "resources": BecomesTemplate("resources", {"cpu": 2}),
    "image": BecomesTemplate("image", {"pip": ["numpy"]}),
    "volumes": BecomesTemplate("volumes", [{"name": "data", "mountPath": "/data"}]),
    "secrets": BecomesTemplate("secrets", ["token"]),
    "workdir": BecomesTemplate("workdir", "src"),
    "services": BecomesTemplate("services", [{"name": "db", "command": ["db"]}]),
    "kubernetes": BecomesTemplate("kubernetes", PODS),
    "placement": SeenElsewhere(_STAGES, "test_a_stage_has_machine_image_and_place_of_its_own"),
    "nodes": BecomesTemplate("nodes", 2),
    "ray": BecomesTemplate("ray", True),
    "resume_args": SeenElsewhere(
        "tests/unit/controllers/test_controllers_checkpoints.py",
        "test_a_stage_with_arguments_of_its_own_has_those",
    ),
}
# Fields that a group shares with a stage become its template in the same way.
GROUP: Mapping[str, Effect] = {
    **STAGE,
    "name": SeenElsewhere(_GROUPS, "test_the_success_of_the_trainer_ends_the_servers_and_the_run"),
    "port": SeenElsewhere(_GROUPS, "test_a_killed_server_restarts_its_group_alone"),
    "restart_policy": SeenElsewhere(
        _GROUPS, "test_under_all_every_group_restarts_with_one_that_failed"
    ),
}
