"""Services of a template: what is refused, where, and what would be right."""

from __future__ import annotations

import pytest

from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.specs.blocks.nodes import Ray
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec

HEAD = """\
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: x}
spec:
  template:
    script: x
    services:
"""


def problems(*services: str) -> list[str]:
    with pytest.raises(ManifestErrors) as caught:
        load_manifests(
            [Document("x.yaml", HEAD + "".join(f"    - {it}\n" for it in services), "/")]
        )
    return [f"{it} {it.hint}" for it in caught.value.problems]


@pytest.mark.parametrize(
    ("service", "message"),
    [
        ("{name: a}", "needs exactly one of `command` and `script`"),
        ("{name: A_b, script: x}", "a name must be 1 to 63 lower case letters"),
        ("{name: a, script: x, ready: {http: /up}}", "or `port: auto` for a free one"),
        ("{name: a, script: x, ready: {http: up, port: 80}}", "a path that begins with `/`"),
        ("{name: a, script: x, ready: {tcp: 70000}}", "from 1 to 65535, without quotes, or `auto`"),
        ("{name: a, script: x, ready: {tcp: 80, port: 80}}", "write `tcp: PORT`"),
        ("{name: a, script: x, ready: {}}", "exactly one of `http`, `tcp` and `command`"),
        ("{name: a, script: x, onExit: Never}", "it must be `Fail`, `Restart` or `Ignore`"),
        ("{name: a, script: x, resources: {gpu: L4}}", "ask for `gpu` in `template.resources`"),
        ("{name: a, command: [a, '&&', b]}", "write `script: a && b`"),
        ("{name: a, script: x, env: {FLEETCTL_PORT_A: '1'}}", "leave it out, or name it otherwise"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(service: str, message: str) -> None:
    (problem,) = problems(service)
    assert problem.startswith("x.yaml:8:")
    assert "spec.template.services[0]" in problem
    assert message in problem


def test_names_and_ports_differ_and_there_are_eight_at_most() -> None:
    (problem,) = problems("{name: a, script: x}", "{name: a, script: y}")
    assert "[0] and [1] are both called `a`" in problem
    both = [f"{{name: {name}, script: x, ready: {{tcp: 80}}}}" for name in "ab"]
    (problem,) = problems(*both)
    assert "two services would listen at port 80" in problem
    (problem,) = problems(*(f"{{name: s{number}, script: x}}" for number in range(9)))
    assert "at most 8" in problem


def test_a_sandbox_has_room_for_its_services_beside_the_work() -> None:
    services = [
        {"name": "a", "script": "x", "resources": {"cpu": 2, "memory": "4Gi"}},
        {"name": "b", "script": "x", "resources": {"cpu": "500m"}},
        {"name": "c", "script": "x"},
    ]
    work = {"cpu": 1, "gpu": "L4"}
    template = Template.model_validate({"script": "x", "services": services, "resources": work})
    asked = template.sandbox_resources
    assert (asked.cpu, asked.memory, asked.disk) == (3.5, 4 * 2**30, None)
    assert str(asked.gpu) == "L4:1" and template.resources.cpu == 1
    assert Template.model_validate({"script": "x"}).sandbox_resources.cpu is None


def test_an_image_of_work_with_services_must_have_python() -> None:
    template = {"script": "x", "image": "busybox", "services": [{"name": "a", "script": "x"}]}
    assert Template.model_validate(template).needs_python
    assert not Template.model_validate({**template, "services": []}).needs_python


def test_a_stage_may_have_other_services_and_a_job_elsewhere_none() -> None:
    services = [{"name": "db", "command": ["postgres"]}]
    stages = [{"name": "one"}, {"name": "two", "services": []}]
    template = {"script": "x", "services": services}
    spec = TrainingRunSpec.model_validate({"template": template, "stages": stages})
    assert [len(spec.template_of(at).services) for at in (0, 1)] == [1, 0]
    ray = Ray.model_validate({"address": "http://head:8265"})
    with pytest.raises(ValueError, match="leave `services` out"):
        TrainingRunSpec(template=Template.model_validate(template), ray=ray)
