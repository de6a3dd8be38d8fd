"""The block with the program and the sandbox of a unit; the same in every running kind.

Read by providers (through RunRequest) and by controllers. Secrets are here by name, never by value.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)

from fleetctl.specs.blocks.kubernetes import PodSettings
from fleetctl.specs.blocks.prompt import Prompt
from fleetctl.specs.blocks.resources import Gpu, Network, Resources
from fleetctl.specs.blocks.services import ServiceResources, Services
from fleetctl.specs.values.metrics import Metrics
from fleetctl.specs.values.packages import OUTSIDE, is_inside
from fleetctl.specs.values.scalars import (
    Bool,
    Duration,
    EnvName,
    Name,
    NonEmptyText,
    PositiveDuration,
    SandboxPath,
    Spec,
    Text,
    env_of,
    require_at_most_one,
)

WORK_FIELDS = ("python", "command", "script")
ENDPOINTS_MAX = 16
OUTPUT_PATTERNS_MAX = 64
ONE_WORK = "a template needs exactly one of `python`, `command`, `script` and `prompt`"
ONE_ORIGIN = "a source needs exactly one of `git` and `path`"
# Fields of a template that may stand beside `prompt`: there is no sandbox.
BESIDE_PROMPT = frozenset({"prompt", "timeout_seconds"})
# Fields of a Function that hold for all tasks that call it, and may not be in their templates.
FUNCTION_FIELDS = ("image", "source", "resources", "secrets", "volumes")

# `ext::` and its like name a program for git to run.
_GIT_HELPER = re.compile(r"[A-Za-z0-9+.-]+::")
_PASSWORD = re.compile(r"//[^/@]*:[^/@]*@")
_INSIDE = re.compile(r"(?!/)(?!.*(?:^|/)\.\.(?:/|$))[^\0]+")
_INDEX = re.compile(r"(?:https|http|file)://[^\s/]*/?\S*")
_USER = re.compile(r"//[^/]*@")
_PYTHON_VERSION = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)?")


def _is_address(value: str) -> str:
    if not _INDEX.fullmatch(value):
        raise ValueError("it must be a https:// or file:// address of a package index")
    if _USER.search(value):
        raise ValueError("it must hold no password: name a Secret in `secret`")
    return value


def _is_place(value: str) -> str:
    if value.startswith("/"):
        return value
    return _is_address(value)


IndexAddress = Annotated[NonEmptyText, AfterValidator(_is_address)]
IndexPlace = Annotated[NonEmptyText, AfterValidator(_is_place)]


class PipIndex(Spec):
    """Where the packages of `image.pip` come from, at least one of `url`, `extra`, `findLinks`."""

    url: IndexAddress | None = Field(
        default=None,
        description="Index in place of the usual one, such as `https://host/simple`; default none.",
    )
    extra: tuple[IndexAddress, ...] = Field(
        default=(), description="Further indexes, which are asked before it; default none."
    )
    find_links: tuple[IndexPlace, ...] = Field(
        default=(), description="Pages that link to packages, or absolute paths; default none."
    )
    secret: Name | None = Field(
        default=None,
        description="Secret with `PIP_INDEX_PASSWORD` for the host of `url`, or of `extra`; default"
        " none.",
    )

    _login: dict[str, str] | None = PrivateAttr(default=None)
    _kept: str = PrivateAttr(default="")

    @property
    def login(self) -> dict[str, str] | None:
        """Values of the Secret, which are in no document."""
        return self._login

    @property
    def kept(self) -> str:
        """The name that the provider has for the Secret, where it keeps the values itself."""
        return self._kept

    def with_login(self, values: dict[str, str], kept: str = "") -> PipIndex:
        made = self.model_copy()
        made._login = values
        made._kept = kept
        return made

    @model_validator(mode="after")
    def _names_something(self) -> PipIndex:
        if not (self.url or self.extra or self.find_links):
            raise ValueError("at least one of `url`, `extra` and `findLinks` must be given")
        if self.secret is not None and not (self.url or self.extra):
            raise ValueError("`secret` goes with `url` or `extra`")
        return self


class Image(Spec):
    """The software of a sandbox: a registry reference, or what to install."""

    registry: NonEmptyText | None = Field(
        default=None,
        description="Reference of an image in a registry; default: a plain Python image.",
    )
    python: NonEmptyText | None = Field(
        default=None, description="Python version such as `3.12`; default: the provider's own."
    )
    pip: tuple[NonEmptyText, ...] = Field(
        default=(),
        description="Python requirements to install, as pip reads them; `-r FILE` for those of a"
        " file; default none.",
    )
    requirements: NonEmptyText | None = Field(
        default=None,
        description="Requirements file of the source, which adds to `pip` at apply; default none.",
    )
    pip_index: PipIndex | None = Field(
        default=None, description="Package index of `pip`; default: that of the installer."
    )
    apt: tuple[NonEmptyText, ...] = Field(default=(), description="System packages; default none.")
    run: tuple[NonEmptyText, ...] = Field(
        default=(), description="Shell commands that finish the image, in order; default none."
    )
    env: dict[EnvName, Text] = Field(
        default_factory=dict,
        description="Environment variables baked into the image; default none.",
    )
    snapshot: NonEmptyText | None = Field(
        default=None,
        description="Name of a Daytona snapshot, with nothing beside it; default none.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"registry": value}
        return value

    @model_validator(mode="after")
    def _is_one_thing(self) -> Image:
        beside = sorted(self.model_dump(exclude_defaults=True).keys() - {"snapshot"})
        if self.snapshot is not None and beside:
            raise ValueError(f"a snapshot is started as it is, so `{beside[0]}` cannot be given")
        return self

    @field_validator("python")
    @classmethod
    def _is_a_version(cls, value: str | None) -> str | None:
        if value is not None and not _PYTHON_VERSION.fullmatch(value):
            raise ValueError('a Python version must be a text such as `"3.12"`')
        return value


def _inside_repository(value: Any) -> Any:
    if isinstance(value, str) and not _INSIDE.fullmatch(value):
        raise ValueError("it must be a directory inside the repository, such as `jobs/nightly`")
    return value


InsideRepository = Annotated[NonEmptyText, BeforeValidator(_inside_repository)]


class GitSource(Spec):
    """Code from a git repository, fetched when a sandbox starts."""

    url: NonEmptyText = Field(description="Where to clone from.")
    ref: NonEmptyText | None = Field(
        default=None,
        description="Branch, tag, commit or full name such as `refs/pull/7/head`; default: the"
        " remote's default.",
    )
    path: InsideRepository | None = Field(
        default=None,
        description="Directory inside it that the task gets; commits elsewhere change nothing."
        " Default: all of it.",
    )
    submodules: Bool = Field(
        default=False, description="Whether to fetch submodules; default false."
    )
    lfs: Bool = Field(
        default=False,
        description="Whether to fetch files of Git LFS; default: to be given where there are any.",
    )

    @field_validator("url")
    @classmethod
    def _is_safe(cls, value: str) -> str:
        if value.startswith("-") or _GIT_HELPER.match(value):
            raise ValueError("it must be a https, ssh or file URL, `user@host:path` or a path")
        if _PASSWORD.search(value):
            raise ValueError("it must hold no password: a manifest is stored and shown")
        return value

    @field_validator("ref")
    @classmethod
    def _is_no_option(cls, value: str | None) -> str | None:
        if value is not None and (value.startswith("-") or any(it.isspace() for it in value)):
            raise ValueError("it must be a branch, a tag or a commit")
        return value


class Source(Spec):
    """Code that the task works on: exactly one of `git` and `path`."""

    model_config = ConfigDict(
        json_schema_extra=require_at_most_one("git", "path", message=ONE_ORIGIN)
    )

    git: GitSource | None = Field(default=None, description="A git repository.")
    path: NonEmptyText | None = Field(
        default=None, description="A directory on this machine, relative to the manifest's own."
    )
    exclude: tuple[NonEmptyText, ...] = Field(
        default=(),
        description="Patterns in the manner of .gitignore, at every depth; `!` takes back in;"
        " default none.",
    )
    follow_links: Bool = Field(
        default=False,
        description="Whether links that lead out of `path` are followed, not left out; default"
        " false.",
    )
    mount_path: SandboxPath | None = Field(
        default=None,
        description="Absolute path inside the sandbox; default: the provider's choice.",
    )

    @model_validator(mode="after")
    def _has_one_origin(self) -> Source:
        if (self.git is None) == (self.path is None):
            raise ValueError(ONE_ORIGIN)
        if self.follow_links and self.path is None:
            raise ValueError("`followLinks` goes with `path`")
        return self


class VolumeMount(Spec):
    """A Volume's path inside the sandbox."""

    name: Name = Field(description="Name of a Volume object; one that does not exist is made.")
    mount_path: SandboxPath = Field(description="Absolute path inside the sandbox.")
    links: tuple[SandboxPath, ...] = Field(
        default=(), description="Further absolute paths that lead to the mount path; default none."
    )
    read_only: Bool = Field(default=False, description="Whether writes are refused; default false.")


def _mounts_are_apart(value: tuple[VolumeMount, ...]) -> tuple[VolumeMount, ...]:
    paths = [path for mount in value for path in (mount.mount_path, *mount.links)]
    for path, times in Counter(paths).items():
        if times > 1:
            raise ValueError(f"two volumes or links lead to `{path}`; each path must be used once")
    return value


SecretNames = Annotated[
    tuple[Name, ...],
    Field(description="Names of Secret objects whose values join the environment."),
]


def _names_are_apart(value: tuple[str, ...]) -> tuple[str, ...]:
    for name, times in Counter(value).items():
        if times > 1:
            raise ValueError(f"`{name}` is listed twice")
    return value


EndpointNames = Annotated[
    tuple[Name, ...],
    Field(
        max_length=ENDPOINTS_MAX,
        description="Names of Endpoint objects that the work may ask, the usual one first; default"
        " none.",
    ),
    AfterValidator(_names_are_apart),
]
VolumeMounts = Annotated[
    tuple[VolumeMount, ...],
    Field(description="Volumes to mount; default none."),
    AfterValidator(_mounts_are_apart),
]


def _name_outputs(value: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in value:
        text = pattern.removeprefix("!")
        if not _INSIDE.fullmatch(text) or text in (".", "./"):
            raise ValueError(
                f"`{pattern}` must be a path or pattern below the directory that the work begins"
                " in, such as `out/**` or `model.pt`"
            )
    if value and all(it.startswith("!") for it in value):
        raise ValueError("a pattern with `!` takes out of those before it, and there is none")
    return _names_are_apart(value)


OutputGlobs = Annotated[
    tuple[NonEmptyText, ...],
    Field(
        max_length=OUTPUT_PATTERNS_MAX,
        description="Files it writes that are kept with its run: `out/**`, `model.pt`; default"
        " none.",
    ),
    AfterValidator(_name_outputs),
]


class Template(Spec):
    """The work of one unit: at most one of `python`, `command`, `script` and `prompt`."""

    model_config = ConfigDict(json_schema_extra=require_at_most_one(*WORK_FIELDS, message=ONE_WORK))

    python: NonEmptyText | None = Field(
        default=None,
        description="Python source; parameters are its variables, `SUBMIT` its result.",
    )
    command: tuple[Text, ...] | None = Field(
        default=None,
        min_length=1,
        description="A program and its arguments; no shell reads it.",
    )
    script: NonEmptyText | None = Field(default=None, description="Text that a POSIX shell runs.")
    prompt: Prompt | None = Field(
        default=None, description="Question to a model, without a sandbox; default none."
    )
    runtime: Literal["sandbox", "function"] = Field(
        default="sandbox",
        description="A sandbox of its own for each task, or the warm containers of a function;"
        " default sandbox.",
    )
    function: Name | None = Field(
        default=None,
        description="Name of a Function object, whose containers run the tasks; default none.",
    )
    image: Image | None = Field(
        default=None,
        description="Packages to install, or a registry reference; default: plain Python, no"
        " packages.",
    )
    source: Source | None = Field(
        default=None, description="Code to put into the sandbox; default none."
    )
    resources: Resources = Field(
        default_factory=Resources, description="Limits of one sandbox; default: no limit."
    )
    env: dict[EnvName, Text] = Field(
        default_factory=dict,
        description="Environment variables; a list of {name, value} is read as well; default none.",
    )
    secrets: SecretNames = ()
    endpoints: EndpointNames = ()
    volumes: VolumeMounts = ()
    network: Network | None = Field(
        default=None, description="Hosts that its sandbox may reach; default: all."
    )
    timeout_seconds: PositiveDuration | None = Field(
        default=None, description="Seconds or `5m` that one attempt may take; default: no limit."
    )
    termination_grace_period_seconds: Duration = Field(
        default=10.0, description="Seconds between the request to end and the kill; default 10."
    )
    workdir: NonEmptyText | None = Field(
        default=None, description="Directory that the task starts in; default: the source's."
    )
    metrics: Metrics | None = Field(
        default=None,
        description="Metrics that it prints or writes; over 1,000 of a name are sampled. Default:"
        " what it reports.",
    )
    services: Services = ()
    outputs: OutputGlobs = ()
    kubernetes: PodSettings | None = Field(
        default=None,
        description="Settings of its pods in a cluster; default: those of the Provider object.",
    )

    @property
    def is_function(self) -> bool:
        """Returns True if its tasks run in the containers of a function."""
        return self.runtime == "function" or self.function is not None

    @property
    def sandbox_resources(self) -> Resources:
        """Returns the request of a sandbox: the work's limits, and the shares of its services. If
        the work has no limit, the sandbox has room for the services at least.
        """
        shares = [it.resources for it in self.services if it.resources is not None]
        if not shares:
            return self.resources
        asked: list[Resources | ServiceResources] = [self.resources, *shares]
        cpu = [it.cpu for it in asked if it.cpu is not None]
        memory = [it.memory for it in asked if it.memory is not None]
        more = {"cpu": sum(cpu) if cpu else None, "memory": sum(memory) if memory else None}
        return self.resources.model_copy(update=more)

    def with_gpu(self, gpu: Gpu) -> Template:
        """The same on another GPU."""
        resources = self.resources.model_copy(update={"gpu": gpu})
        return self.model_copy(update={"resources": resources})

    _observed: bool = PrivateAttr(default=False)

    def observed(self) -> Template:
        """Returns the template of a run whose program logs to wandb, where Python beside it reads
        along.
        """
        made = self.model_copy()
        made._observed = True
        return made

    _carried: bool = PrivateAttr(default=False)

    def carried(self) -> Template:
        """Returns the template of a run whose calls of endpoints are carried by a helper that needs
        Python.
        """
        made = self.model_copy()
        made._carried = True
        return made

    @property
    def needs_python(self) -> bool:
        """Returns True if its image must have Python: for its work, or for the parts beside it,
        where metrics are read, services looked after, outputs kept and calls of endpoints carried.
        """
        beside = self.metrics is not None or bool(self.services or self.outputs) or self._carried
        return self.python is not None or beside or self._observed

    @property
    def asks(self) -> tuple[str, ...]:
        """Names of the Endpoint objects that it may call."""
        if self.prompt is None:
            return self.endpoints
        return (self.prompt.endpoint,)

    @property
    def work(self) -> str | None:
        """Returns the field among WORK_FIELDS and `prompt` that is set; None if another block holds
        the work.
        """
        fields = (*WORK_FIELDS, "prompt")
        return next((name for name in fields if getattr(self, name) is not None), None)

    @field_validator("env", mode="before")
    @classmethod
    def _env_from_list(cls, value: Any) -> Any:
        return env_of(value)

    @model_validator(mode="after")
    def _has_one_work(self) -> Template:
        if sum(getattr(self, name) is not None for name in WORK_FIELDS) > 1:
            raise ValueError(ONE_WORK)
        return self

    @model_validator(mode="after")
    def _has_nothing_beside_its_prompt(self) -> Template:
        extra = sorted(self.model_fields_set - BESIDE_PROMPT) if self.prompt is not None else []
        if extra:
            name = type(self).model_fields[extra[0]].alias or extra[0]
            raise ValueError(f"a prompt has no sandbox, so leave `{name}` out beside `prompt`")
        return self

    @model_validator(mode="after")
    def _has_its_requirements(self) -> Template:
        check_requirements(self.image, self.source)
        return self

    @model_validator(mode="after")
    def _leaves_the_rest_to_its_function(self) -> Template:
        if self.function is not None:
            if "runtime" in self.model_fields_set and self.runtime != "function":
                raise ValueError("`function` names a Function, so `runtime` is `function`")
            for name in FUNCTION_FIELDS:
                if name in self.model_fields_set:
                    raise ValueError(f"`{name}` belongs to function/{self.function}; give it there")
        gpu = self.resources.gpu
        if gpu is not None and gpu.otherwise and not self.is_function:
            raise ValueError("a list of GPUs goes with `runtime: function`; name one GPU")
        return self


def check_requirements(image: Image | None, source: Source | None) -> None:
    """Checks the requirements. A directory's requirements are read before, with the manifest, and
    are entries of `pip` by now. Raises ValueError.
    """
    named = image.requirements if image is not None else None
    if named is None:
        return
    if source is None:
        raise ValueError(
            f"`image.requirements` is a file of the source, and there is no `source`; one beside"
            f" the manifest is `pip: [-r {named}]`"
        )
    if source.git is None:
        raise ValueError("`image.requirements` is read at apply; list its lines in `pip`")
    if not is_inside(named):
        raise ValueError(f"`image.requirements` {OUTSIDE}")
