"""BatchJob: many independent tasks."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from fleetctl.specs.blocks.common import ParamsFrom, WorkSpec, work_in
from fleetctl.specs.blocks.depends import FromResults
from fleetctl.specs.blocks.file_tasks import FileTasks, FromFiles
from fleetctl.specs.blocks.template import ONE_WORK, Template
from fleetctl.specs.values.scalars import (
    COUNT_MAX,
    NonEmptyText,
    ParameterName,
    PositiveCount,
    Spec,
    require_at_most_one,
)

WRONG_ITEMS_MAX = 100
ONE_OF_TASKS = (
    "`tasks` needs exactly one of `items`, `matrix`, `fromFile`, `fromFiles`, `fromResults` and"
    " `completions`"
)
COUNTED_TWICE = "`tasks` already gives their number; leave `completions` out"


def _check_mappings(value: Any) -> Any:
    """Reports a long list of a wrong form once; a model would report every entry."""
    if isinstance(value, list) and len(value) > WRONG_ITEMS_MAX:
        wrong = sum(1 for it in value if not isinstance(it, dict) or not all(it))
        if wrong > WRONG_ITEMS_MAX:
            raise ValueError(
                f"{wrong:,} of its {len(value):,} entries are not mappings of parameters"
            )
    return value


class FromFile(Spec):
    """Rows of a file, read when the manifest is applied."""

    path: NonEmptyText = Field(description="A .jsonl or .csv file, relative to the manifest's own.")
    chunk: PositiveCount | None = Field(
        default=None, description="Rows per task, given as `rows`; default: a task a row."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"path": value}
        return value


class Tasks(Spec):
    """The parameters of each task: exactly one of the fields. A stored object never has `fromFile`,
    and has `files` instead of `fromFiles`.
    """

    model_config = ConfigDict(
        json_schema_extra=require_at_most_one(
            "items", "matrix", "completions", message=ONE_OF_TASKS
        )
    )

    items: Annotated[
        tuple[dict[ParameterName, JsonValue], ...] | None, BeforeValidator(_check_mappings)
    ] = Field(
        default=None,
        min_length=1,
        description="One mapping of parameters a task.",
    )
    matrix: dict[ParameterName, Annotated[tuple[JsonValue, ...], Field(min_length=1)]] | None = (
        Field(
            default=None,
            min_length=1,
            description="A task for every combination; the last varies fastest.",
        )
    )
    completions: PositiveCount | None = Field(
        default=None, description="Number of tasks that differ by index alone."
    )
    from_results: FromResults | None = Field(
        default=None, description="A task for every result of another job, after its end."
    )
    from_file: FromFile | None = Field(default=None, description="A task for every row of a file.")
    from_files: FromFiles | None = Field(
        default=None,
        description="A task for every file that matches; it gets that file alone, as `$TASK_FILE`.",
    )
    files: FileTasks | None = Field(
        default=None, description="Files that `fromFiles` has found, in an object that is stored."
    )
    chunk: PositiveCount | None = Field(
        default=None, description="Rows per task, beside `fromFile`; default: a task a row."
    )

    @model_validator(mode="after")
    def _require_one_form(self) -> Tasks:
        rows = (self.items, self.matrix, self.completions, self.from_file, self.from_results)
        given = (*rows, self.from_files, self.files)
        if sum(it is not None for it in given) != 1:
            raise ValueError(ONE_OF_TASKS)
        if self.chunk is not None and self.from_file is None:
            raise ValueError("`chunk` goes with `fromFile` alone")
        if self.matrix is not None and (self.count() or 0) > COUNT_MAX:
            raise ValueError(f"the matrix has more than {COUNT_MAX:,} combinations")
        return self

    def count(self) -> int | None:
        """Returns the number of rows; None until the results or the volume have been read."""
        if self.from_results is not None:
            return None
        if self.items is not None:
            return len(self.items)
        if self.files is not None:
            return self.files.count()
        if self.matrix is not None:
            return prod(len(values) for values in self.matrix.values())
        assert self.completions is not None, "the loader reads fromFile and fromFiles"
        return self.completions

    def params(self, index: int) -> Mapping[str, JsonValue]:
        """Returns the parameters of task `index`, from 0, without computing those of others."""
        assert 0 <= index < (self.count() or 0)
        if self.items is not None:
            return self.items[index]
        if self.files is not None:
            return self.files.params(index)
        if self.matrix is None:
            return {}
        chosen: dict[str, JsonValue] = {}
        for name, values in reversed(self.matrix.items()):
            index, position = divmod(index, len(values))
            chosen[name] = values[position]
        return {name: chosen[name] for name in self.matrix}


class BatchJobSpec(WorkSpec):
    """Each task is a row of `tasks`, and has an index."""

    model_config = ConfigDict(
        json_schema_extra=require_at_most_one("tasks", "completions", message=COUNTED_TWICE)
    )

    template: Template = Field(
        description="Program and sandbox of each task; the program may be the `paramsFrom` sweep's."
    )
    completions: PositiveCount | None = Field(
        default=None, description="Number of tasks that differ by index alone; default 1."
    )
    completion_mode: Literal["Indexed"] = Field(
        default="Indexed", description="Tasks have indexes from 0; the only mode, and the default."
    )
    tasks: Tasks | None = Field(default=None, description="Parameters of each task; default none.")
    params_from: ParamsFrom | None = Field(
        default=None,
        description="Parameters of all tasks, from a sweep's best trial; a task's own win.",
    )

    @model_validator(mode="after")
    def _is_complete(self) -> BatchJobSpec:
        if self.template.work is None and self.params_from is None:
            raise ValueError(ONE_WORK)
        if self.tasks is not None and self.completions is not None:
            raise ValueError(COUNTED_TWICE)
        return self

    def count(self) -> int | None:
        """Returns the number of tasks; their indexes are 0 to count - 1. None if results of another
        job decide the number, or the files of a volume that has not been listed.
        """
        if self.tasks is not None:
            return self.tasks.count()
        return self.completions or 1

    def params(self, index: int) -> Mapping[str, JsonValue]:
        if self.tasks is not None:
            return self.tasks.params(index)
        return {}


def files_of(spec: object) -> FileTasks | None:
    """Returns the files of the tasks that a spec has or, as a Schedule, makes; None without."""
    work = work_in(spec)
    tasks = work.tasks if isinstance(work, BatchJobSpec) else None
    if tasks is not None:
        return tasks.files
    return None


def awaits_listing(spec: object) -> bool:
    """Returns true for a spec whose tasks are files of a volume that has not been listed."""
    files = files_of(spec)
    return files is not None and files.volume is not None and not files.found
