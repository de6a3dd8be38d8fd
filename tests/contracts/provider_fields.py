"""The part of the provider suite about fields of a template, by work that needs no Python: so the
guest without Python passes it too. `field_effects.py` states which test observes which field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from fleetctl.providers.contract.base import EndpointAccess
from tests.contracts.provider_sources import odd_tree
from tests.contracts.provider_worlds import MOUNT, World, command, python, script, story

# Ends by itself some seconds after it was asked to.
SAVES = "trap 'sleep {s}; echo saved; exit 3' TERM; echo begun; sleep 600 & wait"
ALLOWED = ["10.0.0.0/8"]
MACHINE = """
import json, os, resource, time
found = {"threads": os.environ.get("OMP_NUM_THREADS")}
found["file"] = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
print(json.dumps(found), flush=True)
time.sleep(600)
"""
ASKS = """
import os, urllib.request
key = os.environ["OPENAI_API_KEY"]
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/models")
request.add_header("Authorization", "Bearer " + key)
print(urllib.request.urlopen(request, timeout=60).read().decode())
"""


class ProviderFields:
    """Mixed into ProviderSuite, and by itself into suites of the guest without Python."""

    @story
    async def test_a_command_gets_its_arguments_as_they_are(self, world: World) -> None:
        ref = await world.start(command("printf", "%s|", "a  b", "$HOME", "*", ""))
        seen = await world.ended(ref)
        assert (seen.ok, await world.log(ref)) == (True, b"a  b|$HOME|*||"), seen

    @story
    async def test_a_script_is_read_by_a_shell(self, world: World) -> None:
        ref = await world.start(script('for it in 1 2; do printf "$it."; done'))
        seen = await world.ended(ref)
        assert (seen.ok, await world.log(ref)) == (True, b"1.2."), seen

    @story
    async def test_a_task_has_the_variables_of_its_template(self, world: World) -> None:
        ref = await world.start(script('printf "%s" "$GREETING"', env={"GREETING": "it's\n$me"}))
        seen = await world.ended(ref)
        assert (seen.ok, await world.log(ref)) == (True, b"it's\n$me"), seen

    @story
    async def test_a_task_has_the_variables_of_its_image(self, world: World) -> None:
        ref = await world.start(script('printf "%s" "$OF_IMAGE"', image={"env": {"OF_IMAGE": "x"}}))
        seen = await world.ended(ref)
        assert (seen.ok, await world.log(ref)) == (True, b"x"), seen

    @story
    async def test_a_task_has_the_values_of_its_secrets(self, world: World) -> None:
        work = script('test "$TOKEN" = hush-hush && echo same')
        ref = await world.start(work, secrets={"TOKEN": "hush-hush"})
        seen = await world.ended(ref)
        assert (seen.ok, await world.log(ref)) == (True, b"same\n"), seen

    @story
    async def test_a_task_begins_in_its_workdir(self, world: World) -> None:
        code = odd_tree(world.directory / "proj")
        ref = await world.start(script("ls", source={"path": str(code)}, workdir="data"))
        seen = await world.ended(ref)
        assert (seen.ok, await world.log(ref)) == (True, b"a.txt\n"), seen

    @story
    async def test_a_volume_brings_what_an_earlier_task_left(self, world: World) -> None:
        path = f'"${{FLEETCTL_VOLUME_{world.volume.replace("-", "_").upper()}:?}}"/a.txt'
        volumes = [{"name": world.volume, "mountPath": MOUNT}]
        await world.provider.ensure_volume(world.volume)
        first = await world.run(script(f"echo kept >{path}", volumes=volumes))
        assert first.ok, first
        ref = await world.start(
            script(f"cat {path}", volumes=volumes), run="run-1", template_hash="hash-2"
        )
        seen = await world.ended(ref)
        assert (seen.ok, await world.log(ref)) == (True, b"kept\n"), seen
        await world.provider.remove_scratch("uid-1", keep_logs=False)
        await world.provider.remove_volume(world.volume)

    @story
    async def test_a_run_that_takes_too_long_has_its_grace(self, world: World) -> None:
        for run, grace_s, needed_s, saved in [("long", 60, 1, True), ("none", 0, 5, False)]:
            limits = {"timeoutSeconds": 0.5, "terminationGracePeriodSeconds": grace_s}
            work = script(SAVES.format(s=needed_s), **limits)
            ref = await world.start(work, run=run, template_hash=run)
            seen = await world.ended(ref)
            assert (seen.ok, seen.reason) == (False, "Timeout"), seen
            assert (b"saved" in await world.log(ref)) == saved, run

    @story
    async def test_a_task_reaches_the_hosts_of_its_network_alone(self, world: World) -> None:
        ref = await world.start(script("sleep 600", network={"allow": ALLOWED}))
        await world.alive(ref)
        assert await world.allowed_hosts(ref) == ALLOWED
        await world.provider.stop(ref, grace_s=0)

    @story
    async def test_a_machine_has_the_resources_of_its_template(self, world: World) -> None:
        ref = await world.start(python(MACHINE, resources=world.resources))
        await world.log_holds(ref, b"}")
        assert await world.machine(ref, json.loads(await world.log(ref))) == world.resources
        await world.provider.stop(ref, grace_s=0)

    @story
    async def test_a_machine_has_room_for_its_services(self, world: World) -> None:
        half = {name: int(it) // 2 for name, it in world.resources.items()}
        service = {"name": "db", "script": "sleep 600", "resources": half}
        ref = await world.start(script("sleep 600", resources=half, services=[service]))
        await world.alive(ref)
        assert await world.machine(ref, {}) == world.resources
        await world.provider.stop(ref, grace_s=0)

    @story
    async def test_a_task_calls_the_gateway_of_its_endpoints(self, world: World) -> None:
        with answering() as (url, asked):
            access = EndpointAccess(("small",), {"chat": "Qwen"}, url, "fl-abc")
            template = command("python3", "-c", ASKS, endpoints=["small"]).carried()
            ref = await world.start(template, endpoints=access)
            seen = await world.ended(ref)
            assert (seen.ok, await world.log(ref)) == (True, b"{}\n"), seen
        # From a sandbox a call is carried, under a number by which it is asked once.
        assert [(key, path) for path, key in asked] == [("Bearer fl-abc", "/v1/models")]


@contextmanager
def answering() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server on this machine: its address, and the path and bearer of what it was asked."""
    asked: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.reply(200, b"{}")

        def do_POST(self) -> None:
            dead = b'"dead"' in self.rfile.read(int(self.headers["Content-Length"]))
            self.reply(503 if dead else 200, b'{"choices": [{"message": {"content": "yes"}}]}')

        def reply(self, code: int, data: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: what pytest shows is of the tests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()
