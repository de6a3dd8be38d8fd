"""The promises of a provider, as data that the engine plans with, and how much of an attempt's
outputs it keeps.

Sent to the guest with the patterns.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from fleetctl.specs.blocks.nodes import is_grouped, nodes_of, ray_of, rdma_of
from fleetctl.specs.blocks.template import Template

# The largest total of the files of a task whose order is an argument of a call, or a text for a
# shell.
SMALL_INPUTS_BYTES_MAX = 1024 * 1024

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Contract:
    """The promises of a provider; tests/contracts holds it to every line."""

    visibility_bound_s: float  # a start is visible by id and in a list at the latest after this
    list_shows_finished: bool
    strong_get: bool  # a look-up by id is never stale
    max_lifetime_s: float | None
    billing_quantum_s: float
    calls_per_s: float  # token bucket of our own
    calls_at_once: int
    call_deadline_s: float  # no call is waited for longer
    default_parallelism: int
    poll_s: float  # the net under push notifications
    sandboxes_at_once: int | None = None  # over all objects; None = it reports when it is full
    # Where a list hides what has finished and a name is free again then, a start whose answer was
    # lost could begin twice: there the sandbox is made first, and begins once its id is durable.
    two_phase: bool = False
    functions: bool = False  # runs templates with `runtime: function`
    secrets: bool = False  # gives work the values of secrets that it keeps itself
    guards_secrets: bool = False  # and looks itself whether they are for the work's namespace
    keeps_index_login: bool = False  # a package index's password comes from such a secret alone
    # For a sandbox whose task names no limit of its own; None: unlimited.
    usual_lifetime_s: float | None = None
    nodes_max: int = 1  # machines that can work as one attempt
    ray: bool = False  # starts a Ray cluster before the work
    rdma: bool = False  # can join the machines of an attempt by it
    groups: bool = False  # gives the nodes of a group addresses that other groups know
    inputs_bytes_max: int | None = None  # of all files of a task together; None: no own limit

    def cannot_join(self, provider: str, template: Template) -> str:
        """Returns why this number of nodes, or a Ray cluster over them, cannot be had there; or
        "".
        """
        if is_grouped(template) and not self.groups:
            return f"provider `{provider}` gives the groups of a run no addresses of each other"
        nodes = nodes_of(template)
        if nodes.min > self.nodes_max:
            one = self.nodes_max == 1
            most = "one machine" if one else f"at most {self.nodes_max} machines"
            return f"provider `{provider}` gives an attempt {most}, and `nodes` is {nodes}"
        ray = ray_of(template).enabled
        if template.is_function and (nodes.min > 1 or ray):
            asked = "`ray` asks for a cluster" if ray else f"`nodes` is {nodes}"
            return f"a function runs on one machine and starts no Ray cluster, and {asked}"
        if ray and not self.ray:
            return f"provider `{provider}` starts no Ray cluster; start it inside `script`"
        if rdma_of(template) and not self.rdma:
            return f"provider `{provider}` joins no machines by RDMA"
        return ""

    def cannot_bring(
        self,
        provider: str,
        size: int,
        template: Template,
    ) -> str:
        """Returns why the files of a task cannot come there; or "". size: bytes of all of them."""
        most = self.inputs_bytes_max
        where = ""
        if most is None or size <= SMALL_INPUTS_BYTES_MAX:
            return ""
        image = template.image
        if template.is_function or nodes_of(template).max > 1:
            most = SMALL_INPUTS_BYTES_MAX
            where = " in a function or of several nodes"
        elif image is not None and (image.snapshot or (image.registry and image.python is None)):
            most = SMALL_INPUTS_BYTES_MAX
            where = " in an image without `python`"
        if size <= most:
            return ""
        return (
            f"provider `{provider}` brings at most {most // 1024**2} MiB of files to a task{where},"
            f" and one has {size / 1024**2:.1f} MiB"
        )

    def joins_field(self, template: Template) -> str:
        """Returns the field that asks for it, where `cannot_join` has a reason: `nodes`, `groups`,
        `ray` or `rdma`.
        """
        if is_grouped(template) and not self.groups:
            return "groups"
        nodes = nodes_of(template).min
        if nodes > self.nodes_max or (template.is_function and nodes > 1):
            return "nodes"
        ray = ray_of(template).enabled
        if ray and (template.is_function or not self.ray):
            return "ray"
        return "rdma"

    def joins_hint(self, template: Template) -> str:
        """Returns the hint, where `cannot_join` has a reason."""
        if template.is_function:
            return "use `nodes: 1`, and no `ray`"
        if self.joins_field(template) == "groups":
            return GROUPS_HINT
        if nodes_of(template).min > self.nodes_max:
            return f"use `nodes: {self.nodes_max}`, or place it elsewhere"
        return f"leave `{self.joins_field(template)}` out, or place it elsewhere"


GROUPS_HINT = "place the whole run on `local`, or write a TrainingRun for each group"
BRING_HINT = (
    "keep them on a volume, with their paths in a file of `fromFile`, or place it elsewhere"
)


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """Bytes of one file, and bytes and files of one attempt."""

    file_bytes_max: int
    bytes_max: int
    files_max: int


# All of it passes through the line that carries a run's log, and stays on the disk of this machine:
# larger data belongs in a volume.
OUTPUT_LIMITS = OutputLimits(
    file_bytes_max=GIB,
    bytes_max=2 * GIB,
    files_max=20_000,
)


def outputs_order(
    template: Template, limits: OutputLimits = OUTPUT_LIMITS
) -> dict[str, object] | None:
    """Returns the template's `outputs` as the guest reads them; see guest/outputs. None without."""
    if not template.outputs:
        return None
    return {"patterns": list(template.outputs), **asdict(limits)}
