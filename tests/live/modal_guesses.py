"""Asks the service what its documentation and its SDK leave open, one question a letter.

Called by `make live-modal`. Uses the cheapest sandboxes there are, a dozen of them, and ends each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from secrets import token_hex
from typing import Any

import modal
from modal_proto import api_pb2

from fleetctl.providers.prices.price_table import possible_gpus
from fleetctl.specs.blocks.resources import Gpu

APP = "guesses"
LISTED = Gpu.model_validate(["T4", "H100:8", "L4"])
LIFE_S = 120
CALL_S = 30.0
TAG_TEXTS = ("plain", "with.dot_and-dash", "a/slash", "a space", "colon:", "x" * 63, "x" * 64)


def measured(client: Any) -> Iterator[str]:
    """Lines for people. What the service does not let us ask is answered by its error."""
    service = Service(client)
    questions: list[tuple[str, Callable[[], str]]] = [
        ("a", service.a_repeated_key),
        ("b", service.codes_of_endings),
        ("c", service.a_page_of_a_list),
        ("d", service.version_of_a_volume),
        ("e", service.what_is_known_of_the_finished),
        ("f", service.letters_of_tags),
        ("g", service.words_of_errors),
        ("h", service.names_of_devices),
        ("i", service.a_reload_with_open_files),
    ]
    for letter, ask in questions:
        try:
            yield f"({letter}) {ask()}"
        except Exception as error:  # the answer of a service that we do not know
            yield f"({letter}) not answered: {_words(error)}"


class Service:
    def __init__(self, client: Any) -> None:
        self.client = client
        self.app = modal.App.lookup(APP, client=client, create_if_missing=True)
        self.image = modal.Image.debian_slim().build(self.app)

    def sandbox(self, *argv: str, **options: Any) -> modal.Sandbox:
        made = {"app": self.app, "image": self.image, "client": self.client, "timeout": LIFE_S}
        return modal.Sandbox.create(*argv, **(made | options))

    def a_repeated_key(self) -> str:
        definition = api_pb2.Sandbox(
            entrypoint_args=["sleep", "60"], image_id=self.image.object_id, timeout_secs=LIFE_S
        )
        app_id = self.app.app_id
        older = api_pb2.SandboxCreateRequest(app_id=app_id, definition=definition)
        newer = api_pb2.SandboxCreateV2Request(app_id=app_id, definition=definition)
        parts = []
        for rpc, request in (("SandboxCreate", older), ("SandboxCreateV2", newer)):
            key = token_hex(16)
            ids = [self._call(rpc, request, key=key).sandbox_id for _ in range(2)]
            for sandbox_id in set(ids):
                modal.Sandbox.from_id(sandbox_id, client=self.client).terminate()
            parts.append(f"{'one' if ids[0] == ids[1] else 'two'} by {rpc}")
        return f"two creates with one x-idempotency-key made sandboxes: {', '.join(parts)}"

    def _call(self, rpc: str, request: Any, *, key: str = "") -> Any:
        """One request as it is, on the SDK's own loop, where its connection lives."""
        from modal._utils.async_utils import synchronizer

        metadata = [("x-idempotency-key", key)] if key else []

        async def call() -> Any:
            client = synchronizer._translate_in(self.client)
            if rpc.endswith("V2"):
                token = await client._auth_token_manager.get_token()
                metadata.append(("x-modal-auth-token", token))
            method = getattr(client._stub, rpc)
            return await method(request, retry=None, timeout=CALL_S, metadata=metadata)

        return synchronizer.create_blocking(call)()

    def codes_of_endings(self) -> str:
        hungry = "x = bytearray(2 << 30); x[::4096] = b'1' * len(x[::4096])"
        made = {  # side by side, as the first two take their time
            "idle": self.sandbox("sleep", "60", idle_timeout=10),
            "timeout": self.sandbox("sleep", "60", timeout=10),
            "no such command": self.sandbox("/no/such/command"),
            "memory": self.sandbox("python", "-c", hungry, memory=(128, 256)),
            "terminated": self.sandbox("sleep", "60"),
        }
        made["terminated"].terminate()
        parts = [f"{how} {self._ending(sandbox)}" for how, sandbox in made.items()]
        return "; ".join([*parts, "INTERNAL_FAILURE and EVICTION cannot be ordered"])

    def _ending(self, sandbox: modal.Sandbox) -> str:
        raised = "nothing raised"
        try:
            sandbox.wait()
        except Exception as error:  # which one is the answer
            raised = f"{type(error).__name__} raised"
        code = sandbox.returncode
        with suppress(modal.exception.Error):
            sandbox.terminate()
        return f"{code} ({raised})"

    def a_page_of_a_list(self) -> str:
        live = [self.sandbox("sleep", "60", tags={"guess": "page"}) for _ in range(2)]
        began_s = time.monotonic()
        while len(list(modal.Sandbox.list(app_id=self.app.app_id, tags={"guess": "page"}))) < 2:
            if time.monotonic() - began_s > LIFE_S / 2:
                return "two new sandboxes were not both listed within a minute"
            time.sleep(0.2)
        seen_s = time.monotonic() - began_s
        for sandbox in live:
            sandbox.terminate()
        return (
            f"two new sandboxes were listed after {seen_s:.1f} s; how long a page is, and whether a"
            " newer sandbox can be queued, would take more sandboxes than are worth their money"
        )

    def version_of_a_volume(self) -> str:
        modal.Volume.objects.create("guess", client=self.client)
        request = api_pb2.VolumeGetOrCreateRequest(deployment_name="guess")
        request.environment_name = modal.config.config["environment"]
        version = self._call("VolumeGetOrCreate", request).metadata.version
        modal.Volume.objects.delete("guess", client=self.client)
        return f"a volume whose version is not asked for is of version {version}"

    def what_is_known_of_the_finished(self) -> str:
        sandbox = self.sandbox("sh", "-c", "echo said; exit 7", name="guess-finished")
        sandbox.wait()
        again = modal.Sandbox.from_id(sandbox.object_id, client=self.client)
        code, said = again.poll(), again.stdout.read().strip()
        try:
            modal.Sandbox.from_name(APP, "guess-finished", client=self.client)
            named = "still found"
        except modal.exception.NotFoundError:
            named = "free again"
        return f"by id a finished one tells {code} and its output `{said}`; its name is {named}"

    def letters_of_tags(self) -> str:
        sandbox = self.sandbox("sleep", "60")
        parts = []
        for text in TAG_TEXTS:
            try:
                sandbox.set_tags({"guess": text})
                parts.append(f"`{text[:20]}` taken")
            except modal.exception.Error:
                parts.append(f"`{text[:20]}` refused")
        sandbox.terminate()
        return ", ".join(parts)

    def words_of_errors(self) -> str:
        live = self.sandbox("sleep", "60", name="guess-taken")
        parts = [
            "name taken: " + _raised(lambda: self.sandbox("true", name="guess-taken")),
            "no such GPU: " + _raised(lambda: self.sandbox("true", gpu="NOSUCHGPU")),
            "no such id: " + _raised(lambda: modal.Sandbox.from_id("sb-" + "0" * 22).poll()),
        ]
        live.terminate(wait=True)
        return "; ".join([*parts, "exec after the end: " + _raised(lambda: live.exec("true"))])

    def names_of_devices(self) -> str:
        """What a run is charged by, where its template lists several GPUs."""
        sandbox = self.sandbox("sleep", "60", gpu="T4")
        try:
            asked = sandbox.exec("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
            names = asked.stdout.read().splitlines()
        finally:
            sandbox.terminate(wait=True)
        left = ", ".join(str(it) for it in possible_gpus(LISTED, names).each)
        return f"the driver of a T4 says {names}, which of `T4, H100:8, L4` leaves {left}"

    def a_reload_with_open_files(self) -> str:
        """By which a further task of an open sandbox is given a fresh one."""
        modal.Volume.objects.create("guess-open", version=2, client=self.client)
        volume = modal.Volume.from_name("guess-open", client=self.client)
        holds = ("sh", "-c", "exec 3> /v/held; echo held; sleep 60")
        sandbox = self.sandbox(*holds, volumes={"/v": volume})
        try:
            next(iter(sandbox.stdout))
            return "a reload with an open file: " + _raised(sandbox.reload_volumes)
        finally:
            sandbox.terminate(wait=True)
            modal.Volume.objects.delete("guess-open", client=self.client)


def _raised(act: Callable[[], Any]) -> str:
    try:
        act()
    except Exception as error:  # which one is the answer
        return _words(error)
    return "no error"


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
