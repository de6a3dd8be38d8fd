from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from fleetctl.specs.blocks.common import Metadata, PlacementCandidate, PlacementSpec
from fleetctl.specs.blocks.resources import Gpu
from fleetctl.specs.blocks.template import Image, Template
from fleetctl.specs.kinds.batchjob import BatchJobSpec, Tasks
from fleetctl.specs.kinds.registry import KINDS, dump_spec, find_kind, parse_spec
from fleetctl.specs.kinds.secret import SecretSpec
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec
from fleetctl.specs.kinds.volume import VolumeSpec
from fleetctl.specs.values.scalars import Spec

SCRIPT = Template(script="true")


def test_a_template_takes_short_forms() -> None:
    template = Template.model_validate(
        {
            "script": "x",
            "image": "ghcr.io/acme/embed",
            "resources": {"gpu": "A100:4", "memory": "4Gi", "cpu": "500m"},
            "env": [{"name": "A", "value": "1"}],
        }
    )
    assert template.image == Image(registry="ghcr.io/acme/embed")
    assert template.resources.gpu == Gpu(name="A100", count=4)
    assert (template.resources.memory, template.resources.cpu) == (4 * 1024**3, 0.5)
    assert template.env == {"A": "1"}


def test_a_gpu_without_a_count_is_one() -> None:
    assert Template.model_validate({"resources": {"gpu": "L4"}}).resources.gpu == Gpu(name="L4")


def test_a_mount_path_is_kept_in_its_plain_form() -> None:
    template = Template.model_validate({"volumes": [{"name": "a", "mountPath": "//data///x/"}]})
    assert template.volumes[0].mount_path == "/data/x"


def test_numbers_and_switches_are_not_guessed_from_texts() -> None:
    for data in ({"parallelism": "3"}, {"parallelism": True}, {"suspend": 1}, {"suspend": "true"}):
        with pytest.raises(ValidationError):
            BatchJobSpec.model_validate({"template": {"script": "x"}, **data})


@pytest.mark.parametrize(
    ("outputs", "why"),
    [
        (["/etc/passwd"], "below the directory that the work begins in"),
        (["../x"], "below the directory"),
        (["a/../../x"], "below the directory"),
        (["."], "below the directory"),
        (["!*.log"], "there is none"),
        (["a", "a"], "listed twice"),
        ([f"a{number}" for number in range(65)], "at most 64"),
    ],
)
def test_outputs_are_patterns_below_the_directory_of_the_work(outputs: list[str], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Template.model_validate({"script": "x", "outputs": outputs})


def test_specs_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        SCRIPT.script = "false"  # type: ignore[misc]


def test_a_placement_lists_its_candidates_in_order() -> None:
    local, modal = PlacementCandidate(provider="local"), PlacementCandidate(provider="modal")
    assert PlacementSpec().candidates == (local,)
    assert PlacementSpec(provider="modal").candidates == (modal,)
    assert PlacementSpec(ordered=(modal, local)).candidates == (modal, local)
    assert PlacementSpec(any_of=(local, modal)).candidates == (local, modal)


def test_a_matrix_counts_in_declared_order_with_the_last_fastest() -> None:
    tasks = Tasks(matrix={"b": (1, 2), "a": ("x", "y", "z")})
    found = [dict(tasks.params(index)) for index in range(tasks.count())]
    assert found[:4] == [
        {"b": 1, "a": "x"},
        {"b": 1, "a": "y"},
        {"b": 1, "a": "z"},
        {"b": 2, "a": "x"},
    ]
    assert [list(it) for it in found] == [["b", "a"]] * 6


def test_a_matrix_of_a_billion_tasks_gives_any_one_at_once() -> None:
    tasks = Tasks(matrix={name: tuple(range(1000)) for name in "abc"})
    assert tasks.count() == 10**9
    assert tasks.params(123_456_789) == {"a": 123, "b": 456, "c": 789}


def test_a_matrix_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ValidationError, match="combinations"):
        Tasks(matrix={name: tuple(range(1000)) for name in "abcd"})


def test_a_batch_job_without_tasks_has_one() -> None:
    assert BatchJobSpec(template=SCRIPT).count() == 1
    assert BatchJobSpec(template=SCRIPT, completions=7).count() == 7
    items = Tasks(items=({"x": 1}, {"x": None}))
    job = BatchJobSpec(template=SCRIPT, tasks=items)
    assert [job.params(index) for index in range(job.count())] == [{"x": 1}, {"x": None}]


def test_a_stage_takes_from_the_template_what_it_leaves_out() -> None:
    run = TrainingRunSpec.model_validate(
        {
            "template": {"script": "train", "env": {"A": "1", "B": "1"}, "timeoutSeconds": 60},
            "stages": [
                {"name": "data", "command": ["make", "data"], "timeoutSeconds": "5m"},
                {"name": "train", "env": {"B": "2"}},
            ],
        }
    )
    data, train = run.template_of(0), run.template_of(1)
    assert (data.command, data.script, data.timeout_seconds) == (("make", "data"), None, 300)
    assert (train.script, train.env) == ("train", {"A": "1", "B": "2"})
    assert (train.timeout_seconds, run.count()) == (60, 2)


def test_a_training_run_without_stages_is_one_stage() -> None:
    run = TrainingRunSpec(template=SCRIPT)
    assert (run.count(), run.template_of(0)) == (1, SCRIPT)


def test_the_trial_limit_is_the_smaller_of_trials_and_run_cap() -> None:
    search = {"method": "grid", "program": "t.py", "parameters": {"a": {"values": [1]}}}
    for trials, run_cap, limit in ((None, None, None), (3, None, 3), (None, 4, 4), (5, 4, 4)):
        spec = SweepSpec.model_validate(
            {"trials": trials, "search": {**search, "run_cap": run_cap}}
        )
        assert spec.trial_limit == limit


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("BatchJob", {"template": {"script": "x"}, "tasks": {"items": [{"a": None, "b": [1.5]}]}}),
        ("BatchJob", {"template": {"script": "x"}, "tasks": {"matrix": {"z": [1], "a": [2]}}}),
        ("BatchJob", {"template": {"command": ["x"], "resources": {"gpu": "A100:2"}}}),
        ("BatchJob", {"template": {"script": "x"}, "retry": {"backoff": {"initial": "5s"}}}),
        (
            "Sweep",
            {"search": {"method": "grid", "program": "x", "parameters": {"a": {"value": None}}}},
        ),
        ("TrainingRun", {"template": {}, "stages": [{"name": "a", "script": "x"}]}),
        ("Volume", {"size": "1Gi", "deletionPolicy": "Delete"}),
        ("Secret", {"fromEnv": ["A"], "fromFile": {"B": "/x"}}),
    ],
)
def test_a_stored_spec_reads_back_as_it_was(kind: str, data: dict[str, object]) -> None:
    spec = KINDS[kind].spec.model_validate(data)
    text = dump_spec(spec)
    assert parse_spec(kind, text) == spec
    assert dump_spec(parse_spec(kind, text)) == text


def test_a_stored_matrix_keeps_the_order_that_gives_tasks_their_indexes() -> None:
    spec = BatchJobSpec(template=SCRIPT, tasks=Tasks(matrix={"z": (1, 2), "a": (3, 4)}))
    again = parse_spec("BatchJob", dump_spec(spec))
    assert isinstance(again, BatchJobSpec)
    assert list(again.params(1)) == ["z", "a"]
    assert again.params(1) == {"z": 1, "a": 4}


def test_kinds_are_found_by_any_of_their_names() -> None:
    for word in ("BatchJob", "batchjob", "batchjobs", "job", "jobs"):
        assert find_kind(word) is KINDS["BatchJob"]
    assert find_kind("tr") is KINDS["TrainingRun"]
    assert find_kind("vol") is KINDS["Volume"]
    assert find_kind("pods") is None


def test_no_two_kinds_share_a_name() -> None:
    words = [
        word for kind in KINDS.values() for word in {kind.name.lower(), kind.plural, *kind.short}
    ]
    assert len(words) == len(set(words))


def models(model: type[BaseModel], seen: dict[str, type[BaseModel]]) -> dict[str, type[BaseModel]]:
    for inner in Spec.__subclasses__():
        if not inner.__module__.startswith("fleetctl."):
            continue  # of a package of another project, which another test has loaded
        seen[inner.__name__] = inner
        for deeper in inner.__subclasses__():
            seen[deeper.__name__] = deeper
    seen[model.__name__] = model
    return seen


def test_every_field_is_described_in_one_line_that_names_its_default() -> None:
    found: dict[str, type[BaseModel]] = {}
    for kind in KINDS.values():
        models(kind.spec, found)
    models(Metadata, found)
    silent, long, without_default = [], [], []
    for model in found.values():
        for name, field in model.model_fields.items():
            said, where = field.description or "", f"{model.__name__}.{name}"
            if not said.endswith("."):
                silent.append(where)
            if len(said) > 100 or "\n" in said:
                long.append(where)
            plain = field.default_factory is None and field.default not in (None, ())
            if plain and not field.is_required() and "efault" not in said and "lways" not in said:
                without_default.append(where)
    assert (silent, long, without_default) == ([], [], [])


def test_the_defaults_are_those_that_were_agreed() -> None:
    job = BatchJobSpec(template=SCRIPT)
    assert (job.parallelism, job.suspend, job.backoff_limit_per_index) == (None, False, 0)
    assert (job.max_infra_retries, job.rollout, job.seed) == (5, "Replace", 0)
    backoff = job.retry.backoff
    assert (backoff.initial_s, backoff.max_s, backoff.factor) == (1.0, 300.0, 2.0)
    assert (job.sandbox.reuse, job.placement.candidates[0].provider) == (1, "local")
    assert (VolumeSpec().provider, VolumeSpec().deletion_policy) == ("local", "Retain")
    assert SCRIPT.termination_grace_period_seconds == 10
    assert SecretSpec(from_env=("A",)).from_file == {}


def test_stages_that_all_have_their_own_work_need_no_template() -> None:
    spec = TrainingRunSpec.model_validate({"stages": [{"name": "a", "script": "x"}]})
    assert spec.template_of(0) == Template(script="x")
    assert parse_spec("TrainingRun", dump_spec(spec)) == spec
    with pytest.raises(ValidationError, match="the template needs exactly one of"):
        TrainingRunSpec.model_validate({})
