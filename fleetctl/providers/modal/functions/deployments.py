"""Functions deployed at Modal: an app for each content, made once, stopped when no user needs it; a
web function among them answers HTTP.

The users of each app are recorded on this machine's disk before the app is made, so that a crash
leaves no unknown app behind.

Anyone with the URL of a web function can call it. So Modal does not reach the server itself but
fleetctl_server.py before it, which lets through only requests with the key of this app. Tokens of
Modal's own (`requires_proxy_auth`) are made on its site alone, by hand and for a whole workspace.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import secrets
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import Unavailable
from fleetctl.guest import supervision
from fleetctl.providers.contract.base import FunctionRequest, ServerOrder
from fleetctl.providers.modal.assets import modal_images
from fleetctl.providers.modal.assets.modal_images import FUNCTION_PARTS, function_part
from fleetctl.providers.modal.connection.modal_connection import ModalConnection
from fleetctl.providers.modal.connection.modal_errors import (
    error_words,
    is_not_found,
    not_found_error,
    retryable_call,
)
from fleetctl.providers.modal.runs import modal_machines
from fleetctl.providers.paths import checked_name, make_private
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.service_calls import ToleratedAnswer
from fleetctl.specs.blocks.nodes import rdma_of
from fleetctl.specs.blocks.template import Template

if TYPE_CHECKING:
    import modal

    # From a text, the order, to bytes, the frames of its run.
    Deployed = modal.Function[[str], bytes, bytes]


BODY = "fleetctl_body"
BODY_FILE = Path(__file__).with_name("container") / f"{BODY}.py"
APPS = "fleetctl-fn-"  # begins the name of every app that holds a function
FUNCTION = "run"  # the name of the one function of each app
DEPLOY_S = 300.0  # its image is built before
CALL_S = 30.0
LIFE_S = 86_400  # Modal lets no call run longer
LIFE_SLACK_S = 300  # for a call to begin, to commit and to return its frames
GATHER_S = 600  # beyond that, for several nodes to be ready; as in fleetctl_gang.py

SERVER = "fleetctl_server"
SERVER_FILE = Path(supervision.__path__[0]) / f"{SERVER}.py"
ORDER = "FLEETCTL_SERVER"  # variable that holds it
# Its own process, and the report that the server did not become ready, come after its time limit.
STARTUP_SLACK_S = 30.0
PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class FunctionDeployment:
    """A function to deploy, and its user: `job-<uid>` or `function-<name>`."""

    template: Template
    function: FunctionRequest
    secrets: dict[str, str]
    secret_refs: tuple[str, ...]
    user: str
    job: Path  # where builds and sources of the user are kept
    commit: str | None = None  # that a container clones, once for all its calls
    server: ServerOrder | None = None  # for a function that answers HTTP, and is not called


@dataclass(frozen=True, slots=True)
class FunctionParts:
    """The parts of a deployment that are looked up or built first."""

    image: modal.Image
    volumes: dict[str | PurePosixPath, modal.Volume | modal.CloudBucketMount]
    secrets: list[modal.Secret]


class Deployments:
    """Deploys and stops functions. parts: finds a function's parts; may raise Refused and
    Unavailable. stale: called when Modal does not know a part any more.
    """

    def __init__(
        self,
        home: Path,
        store_id: str,
        connection: ModalConnection,
        parts: Callable[[FunctionDeployment], Awaitable[FunctionParts]],
        *,
        stale: Callable[[Template], None],
    ) -> None:
        self._home = home / "functions"
        self._store_id = store_id
        self._connection = connection
        self._parts = parts
        self._stale = stale
        self._found: dict[str, Deployed] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def ready(self, wanted: FunctionDeployment) -> tuple[str, Deployed]:
        """The app's name and its function, deployed now or before. Raises Refused, Unavailable."""
        app = self.app_name(wanted)
        known = self._found.get(app)
        if known is not None and self._marker(app, wanted.user).exists():
            return app, known
        async with self._locked(app):
            make_private(self._home / app)
            self._marker(app, wanted.user).touch(mode=0o600)
            function = self._found.get(app) or await self._look_up(app)
            if function is None:
                function = await self._await_deployed(app, wanted)
            self._found[app] = function
            return app, function

    def forget(self, app: str) -> None:
        """Forgets an app that Modal does not know: it is looked up again."""
        self._found.pop(app, None)

    def app_name(self, wanted: FunctionDeployment) -> str:
        """A function of the content. Values of secrets are hashed under a key of this machine."""
        template = wanted.template
        function = wanted.function
        parts = [*map(function_part, FUNCTION_PARTS)]
        parts.append(BODY_FILE.read_bytes())
        facts: list[object] = [
            template.model_dump(
                mode="json",
                include=_CONTENT,
                exclude_defaults=True,
            ),
            [modal_machines.cluster_size(template), rdma_of(template)],
            [function.name, function.min_containers, function.max_containers, function.scaledown_s],
            life_s(wanted),
            sorted(wanted.secret_refs),
            wanted.commit,
            # Two jobs may have different directories behind the same path.
            str(wanted.job) if template.source is not None and template.source.path else "",
            blake2b(b"".join(parts)).hexdigest(),
        ]
        if wanted.server is not None:
            facts += [asdict(wanted.server), sorted(template.env.items())]
            facts += [blake2b(SERVER_FILE.read_bytes()).hexdigest()]
        digest = blake2b(digest_size=10, key=self._key())
        digest.update(json.dumps(facts, sort_keys=True).encode())
        digest.update(json.dumps(sorted(wanted.secrets.items())).encode())
        return f"{self._prefix()}{digest.hexdigest()}"

    def server_key(self, app: str) -> str:
        """Returns the key by which its server knows us; the same for the same app, and kept
        nowhere.
        """
        return blake2b(
            app.encode(),
            digest_size=24,
            key=self._key(),
            person=b"server",
        ).hexdigest()

    async def containers(self, user: str) -> int:
        """Returns how many containers of the user's apps exist; 0 without an app."""
        total = 0
        for marker in self._home.glob(f"*/{checked_name(user)}"):
            app = marker.parent.name
            function = self._found.get(app) or await self._look_up(app)
            if function is not None:
                async with retryable_call("containers cannot be counted", deadline_s=CALL_S):
                    total += (await function.get_current_stats.aio()).num_total_runners
        return total

    async def release(self, user: str, *, but: str = "") -> None:
        """Drops the user's need of all apps except `but`, and stops the apps that no user needs
        then.
        """
        for marker in list(self._home.glob(f"*/{checked_name(user)}")):
            app = marker.parent.name
            if app == but:
                continue
            if but:
                await self._keep_no_more_warm(app)
            marker.unlink(missing_ok=True)
        await self.collect()

    async def collect(self) -> None:
        """Stops every app that no user needs, also those that a crash left."""
        for directory in sorted(self._home.iterdir()) if self._home.is_dir() else ():
            if directory.is_dir() and not any(directory.iterdir()):
                async with self._locked(directory.name):
                    if not any(directory.iterdir()):
                        await self._stop(directory.name)
                        shutil.rmtree(directory)

    def wants(self, user: str) -> bool:
        return any(self._home.glob(f"*/{checked_name(user)}"))

    # -- helpers -----------------------------------------------------------------------------------

    async def _await_deployed(self, app: str, wanted: FunctionDeployment) -> Deployed:
        why = Unavailable("a function was deployed and is not seen yet", retry_after_s=1.0)
        try:
            await self._deploy(app, wanted)
        except Unavailable as error:
            why = error  # somebody else may have been first, or the answer was lost
        function = await self._look_up(app)
        if function is None:
            raise why
        return function

    async def _deploy(self, app_name: str, wanted: FunctionDeployment) -> None:
        import modal

        # Cheap refusals come before an image is built.
        modal_machines.check_cluster(wanted.template)
        resources = wanted.template.sandbox_resources
        nodes = modal_machines.cluster_size(wanted.template)
        machine = modal_machines.choose_machine(resources)
        gpus = (
            [modal_machines.gpu_name(one) for one in resources.gpu.choices]
            if resources.gpu
            else None
        )
        parts = await self._parts(wanted)
        limits = wanted.function
        app = modal.App(app_name, tags=sandbox_names.fleet_tag(self._store_id))
        values: dict[str, str | None] = dict(wanted.secrets)
        body = load_shipped(BODY, BODY_FILE).run
        if wanted.server is not None:
            key = self.server_key(app_name)
            values[ORDER] = server_order(wanted.server, wanted.template, wanted.commit, key)
            body = decorator_options(wanted.server)
        elif nodes > 1:
            body = modal.clustered(size=nodes, rdma=rdma_of(wanted.template))(body)
        app.function(
            name=FUNCTION,
            image=parts.image,
            secrets=[*parts.secrets, *([modal.Secret.from_dict(values)] if values else [])],
            volumes=parts.volumes,
            gpu=gpus,
            cpu=machine.cpu,
            memory=machine.memory,
            timeout=life_s(wanted),
            startup_timeout=startup_s_of(wanted.server) if wanted.server else None,
            retries=None if wanted.server else 0,
            min_containers=limits.min_containers,
            max_containers=limits.max_containers,
            scaledown_window=round(limits.scaledown_s),
            # An idle cluster would cost as much as one that works.
            single_use_containers=nodes > 1,
        )(body)
        client = await self._connection.client()
        what = "the function cannot be deployed"
        try:
            async with retryable_call(what, deadline_s=DEPLOY_S):
                await app.deploy.aio(client=client)
        except not_found_error() as error:
            self._stale(wanted.template)
            raise Unavailable(f"{what}: {error_words(error)}", retry_after_s=1.0) from error

    async def _look_up(self, app: str) -> Deployed | None:
        import modal

        client = await self._connection.client()
        found: Deployed = modal.Function.from_name(app, FUNCTION, client=client)
        with ToleratedAnswer(is_not_found):
            async with retryable_call("the function cannot be looked up", deadline_s=CALL_S):
                await found.hydrate.aio()
            return found
        return None

    async def _keep_no_more_warm(self, app: str) -> None:
        """Lets the app's calls end; afterwards the app costs no money."""
        function = self._found.get(app) or await self._look_up(app)
        if function is not None:
            async with retryable_call("the function cannot be scaled down", deadline_s=CALL_S):
                await function.autoscaler.update.aio(min_containers=0)

    async def _stop(self, name: str) -> None:
        self.forget(name)
        await stop_app(await self._connection.client(), name, deadline_s=CALL_S)

    @asynccontextmanager
    async def _locked(self, app: str) -> AsyncIterator[None]:
        async with self._locks.setdefault(app, asyncio.Lock()):
            yield

    def _marker(self, app: str, user: str) -> Path:
        return self._home / checked_name(app) / checked_name(user)

    def _prefix(self) -> str:
        return f"{APPS}{fleet_name(self._store_id)}-"

    def _key(self) -> bytes:
        path = make_private(self._home) / "key"
        if not path.exists():
            temporary = path.with_suffix(f".{secrets.token_hex(4)}")
            temporary.touch(mode=0o600)
            temporary.write_bytes(secrets.token_bytes(32))
            temporary.replace(path)
        return path.read_bytes()


# The fields of a template that all calls of a function share. Work, parameters and variables travel
# with each call.
_CONTENT = {"image", "source", "resources", "volumes"}


async def stop_app(
    client: modal.Client,
    name: str,
    *,
    deadline_s: float,
) -> None:
    """Ends a function and its containers. Idempotent. Raises Refused and Unavailable."""
    import modal

    with ToleratedAnswer(is_not_found):
        async with retryable_call(
            f"the function's app `{name}` cannot be stopped", deadline_s=deadline_s
        ):
            app = await modal.App.lookup.aio(name, client=client)
            await app.stop.aio(client=client)


def fleet_name(store_id: str) -> str:
    """Short for a store, in names of apps and handles."""
    return blake2b(store_id.encode(), digest_size=6).hexdigest()


def life_s(wanted: FunctionDeployment) -> int:
    """Modal ends a call then, whatever becomes of us. A Function object serves tasks of any
    length.
    """
    template = wanted.template
    if wanted.function.name or template.timeout_seconds is None:
        return LIFE_S
    task_s = template.timeout_seconds + template.termination_grace_period_seconds
    return min(LIFE_S, math.ceil(task_s) + slack_s(wanted))


def slack_s(wanted: FunctionDeployment) -> int:
    """The part of a call's life that is not its task's."""
    return LIFE_SLACK_S + (GATHER_S if modal_machines.cluster_size(wanted.template) > 1 else 0)


def load_shipped(name: str, file: Path) -> ModuleType:
    """A file as a module without a package: so the SDK ships this one file, and the Python of a
    container need not be ours.
    """
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


def decorator_options(server: ServerOrder) -> Any:
    """Returns the arguments of `app.function`."""
    import modal

    listen = _listen_port(server)
    startup_s = startup_s_of(server)
    body = modal.web_server(listen, startup_timeout=startup_s)(
        load_shipped(SERVER, SERVER_FILE).run
    )
    return modal.concurrent(max_inputs=server.concurrency)(body)


def startup_s_of(server: ServerOrder) -> int:
    return math.ceil(server.startup_s + STARTUP_SLACK_S)


def server_order(
    server: ServerOrder,
    template: Template,
    commit: str | None,
    key: str,
) -> str:
    """Returns the order that fleetctl_server.py reads."""
    setup, directory = modal_images.setup_commands(template, commit)
    fields = {
        "key": key,
        "host": "0.0.0.0",  # noqa: S104 - Modal asks by the container's outer address
        "listen": _listen_port(server),
        "port": server.port,
        "argv": list(server.command),
        "ready": server.ready,
        "startup_s": server.startup_s,
        "idle_s": 0,
        "setup": setup,
        "workdir": directory,
        "env": dict(template.env),
    }
    return json.dumps(fields)


def _listen_port(server: ServerOrder) -> int:
    """Beside the server's own port."""
    if server.port < PORT_MAX:
        return server.port + 1
    return server.port - 1
