"""The table of effects, beside the content table `specs/content.py`: for each field that a guest or
a provider carries out, the test that observes its effect there, or the manifest that is refused
before it is stored. test_field_effects.py fails for a field without its row.

A new field of the template needs a row here and a test in `provider_fields.py`, which runs on every
provider; a provider that cannot carry it out refuses it in its `*_preflight.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.contracts.provider_bare import WithoutPython
from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.test_provider_daytona import TestDaytona, TestDaytonaWithoutPython
from tests.contracts.test_provider_kubernetes import TestKubernetes, TestKubernetesWithoutPython
from tests.contracts.test_provider_local import TestNamespaces, TestProcess
from tests.contracts.test_provider_modal import TestModal, TestModalWithoutPython, TestOlderBackend
from tests.contracts.test_provider_modal_functions import TestModalFunctions

LOCAL, MODAL, DAYTONA, KUBERNETES = "local", "modal", "daytona", "kubernetes"
FUNCTIONS = "functions of modal"
BARE = "the guest without Python"
# The suites of each way to carry out a template.
SUITES: Mapping[str, tuple[type[ProviderSuite] | type[WithoutPython], ...]] = {
    LOCAL: (TestNamespaces, TestProcess),
    MODAL: (TestModal, TestOlderBackend),
    FUNCTIONS: (TestModalFunctions,),
    DAYTONA: (TestDaytona,),
    KUBERNETES: (TestKubernetes,),
    BARE: (TestModalWithoutPython, TestDaytonaWithoutPython, TestKubernetesWithoutPython),
}


@dataclass(frozen=True, slots=True)
class SeenElsewhere:
    """A test outside of the suites that observes the effect. path: of its file; name: its own."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class RefusedBefore:
    """A template that `validate` refuses there. says: a part of the message."""

    template: Mapping[str, Any]
    says: str


@dataclass(frozen=True, slots=True)
class LeftToAnother:
    """A reason why this guest or provider never meets the field."""

    reason: str


Effect = str | SeenElsewhere | RefusedBefore | LeftToAnother


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
        **_alone("does not restrict a task's network", LOCAL, KUBERNETES, network={}),
    ),
    "endpoints": _row(
        "test_a_task_calls_the_gateway_of_its_endpoints",
        bare=OTHER_GUEST,
        functions=RefusedBefore(
            {**CALLED, "endpoints": ["small"]}, "a function's containers cannot ask endpoint"
        ),
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
