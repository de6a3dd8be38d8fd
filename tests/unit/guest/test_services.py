"""Services beside the work, by the guest of remote sandboxes: what leads them is the same on this
machine.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.unit.guest.remote_world import Box, Story, bytes_of, read_text, wait_for

SERVES = """
import http.server, os, sys
print("loading", flush=True)
class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204 if self.path == "/ready" else 404)
        self.end_headers()
    def log_message(self, form, *words):
        print(form % words, flush=True)
http.server.HTTPServer(("127.0.0.1", int(os.environ["FLEETCTL_PORT_WEB"])), Web).serve_forever()
"""
ASKS = """
python3 - <<'P'
import os, urllib.request
urllib.request.urlopen(f"http://127.0.0.1:{os.environ['FLEETCTL_PORT_WEB']}/ready")
P
"""


def service(*argv: str, name: str = "web", **changes: Any) -> dict[str, Any]:
    made = {"name": name, "argv": list(argv), "env": {}, "ready": None, "on_exit": "Fail"}
    return {**made, **changes}


def shell(text: str, **changes: Any) -> dict[str, Any]:
    return service("sh", "-c", text, **changes)


def web(path: str = "/ready", timeout_s: float = 30.0) -> dict[str, Any]:
    ready = {"path": path, "port": 0, "timeout_s": timeout_s, "every_s": 0.02}
    return service(sys.executable, "-c", SERVES, ready=ready)


def command_ready(text: str, timeout_s: float = 30.0) -> dict[str, Any]:
    return {"argv": ["sh", "-c", text], "timeout_s": timeout_s, "every_s": 0.02}


def log_of(story: Story, name: str) -> str:
    frames = [it for it in story.frames if it["e"] == "log" and it.get("of") == name]
    return b"".join(map(bytes_of, frames)).decode()


def states(story: Story, name: str = "web") -> list[str]:
    told = [it["services"][name] for it in story.frames if it["e"] == "services"]
    return [it for at, it in enumerate(told) if at == 0 or told[at - 1] != it]


def test_work_finds_its_service_ready_and_their_logs_are_apart(python_box: Box) -> None:
    story = python_box.script(f"echo mine; {ASKS}", services=[web()])
    assert story.ended["ok"], story.ended
    assert "mine\n" in story.log.decode()
    assert "loading" not in story.log.decode()
    assert log_of(story, "web").startswith("loading\n")
    assert '"GET /ready HTTP/1.1" 204' in log_of(story, "web")
    assert states(story) == ["Starting", "Ready"]
    assert wait_for(lambda: not python_box.processes())


def test_python_work_has_the_ports_of_services_and_hands_in_its_result(python_box: Box) -> None:
    code = "import os\nSUBMIT(port=int(os.environ['FLEETCTL_PORT_WEB']))"
    story = python_box.python(code, services=[web()])
    assert story.ended["ok"], story.ended
    assert '"port":' in (story.parsed.result or "")


def test_a_service_that_ends_before_it_is_ready_fails_the_attempt(python_box: Box) -> None:
    story = python_box.script(
        "echo never",
        services=[shell("echo no model here; exit 3", ready=command_ready("false"))],
    )
    assert (story.ended["reason"], story.ended["infra"]) == ("ServiceFailed", False)
    message = "service `web` exited with code 3 before it was ready; its last lines:\n"
    assert story.ended["message"] == f"{message}no model here"
    assert b"never" not in story.log


def test_a_service_that_is_not_ready_in_time_fails_the_attempt(python_box: Box) -> None:
    # Time enough for the service to answer at all, also on a busy machine.
    story = python_box.script("echo never", services=[web("/other", timeout_s=15.0)])
    assert story.ended["reason"] == "ServiceNotReady"
    assert "service `web` was not ready after 15 s: `http://localhost:" in story.ended["message"]
    assert "/other` does not answer with 200 to 399; its last lines:" in story.ended["message"]
    assert b"never" not in story.log
    assert wait_for(lambda: not python_box.processes())


def test_a_service_that_ends_while_the_work_runs_ends_it(python_box: Box) -> None:
    go = python_box.directory / "go"
    waits = f"until [ -e {go} ]; do sleep 0.02; done; echo gone; exit 4"
    work = f"trap 'echo saved; exit 0' TERM; touch {go}; while :; do sleep 0.02; done"
    story = python_box.script(work, services=[shell(waits)])
    assert story.ended["reason"] == "ServiceFailed"
    assert story.ended["message"].startswith("service `web` exited with code 4 while the work")
    assert "saved\n" in story.log.decode()
    assert states(story) == ["Ready", "Ended"]


@pytest.mark.parametrize("on_exit", ["Ignore", "Restart"])
def test_a_service_may_end_or_is_started_again(python_box: Box, on_exit: str) -> None:
    count = python_box.directory / "count"
    text = f"echo begun >>{count}; [ $(wc -l <{count}) -lt 2 ] || sleep 600"
    least = 2 if on_exit == "Restart" else 1
    work = f"until [ $(wc -l <{count}) -ge {least} ]; do sleep 0.02; done"
    story = python_box.script(work, services=[shell(text, on_exit=on_exit)])
    assert story.ended["ok"], story.ended
    assert read_text(count) == "begun\n" * least
    assert wait_for(lambda: not python_box.processes())


def test_services_stand_until_stopped_work_is_over(python_box: Box) -> None:
    saves = f"sleep 0.2; {ASKS} echo saved; exit 0"
    work = f"trap '{saves}' TERM; echo begun; while :; do sleep 0.02; done"
    attached = python_box.attach(python_box.order(argv=["sh", "-c", work], services=[web()]))
    attached.until(lambda story: b"begun" in story.log)
    python_box.stop(grace_s=20.0)
    story = attached.rest()
    assert story.ended["reason"] == "Stopped"
    assert "saved\n" in story.log.decode()
    assert wait_for(lambda: not python_box.processes())


def test_nothing_of_services_outlives_work_that_is_killed(python_box: Box) -> None:
    stubborn = "trap '' TERM; (trap '' TERM; sleep 600) & while :; do sleep 600; done"
    order = python_box.order(
        argv=["sh", "-c", "echo begun; sleep 600"], services=[shell(stubborn)], timeout_s=0.5
    )
    story = python_box.told({**order, "grace_s": 0.2})
    assert story.ended["reason"] == "Timeout"
    assert wait_for(lambda: not python_box.processes())


def test_work_that_cannot_be_started_says_why(python_box: Box) -> None:
    order = python_box.order(argv=["no-such-program"], services=[shell("exec sleep 600")])
    story = python_box.told(order)
    assert story.ended["reason"] == "CommandNotFound"
    assert "command `no-such-program` was not found" in story.ended["message"]


def test_an_exit_by_a_signal_is_told_as_without_services(python_box: Box) -> None:
    story = python_box.script("kill -SEGV $$", services=[shell("sleep 600")])
    assert story.ended["reason"] == "Signal:SEGV"


def test_a_port_that_is_in_use_is_never_taken_for_the_service(python_box: Box) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ready = {"path": None, "port": port, "timeout_s": 30.0, "every_s": 0.02}
        story = python_box.script("echo never", services=[shell("sleep 600", ready=ready)])
    assert story.ended["reason"] == "ServiceFailed"
    assert story.ended["message"].startswith(f"port {port} is in use before service `web`")
    assert "FLEETCTL_PORT_WEB" in story.ended["message"]


def test_a_stream_goes_on_where_the_log_of_a_service_was_left(python_box: Box) -> None:
    order = python_box.order(
        argv=["true"],
        services=[
            shell("printf 0123456789; touch up; exec sleep 600", ready=command_ready("test -e up"))
        ],
    )
    python_box.told(order)
    attached = python_box.verb("attach", "--run", "run-0", "--services", "web=4")
    assert attached.stdout is not None
    story = Story()
    for line in attached.stdout:
        story.take(line)
    assert log_of(story, "web") == "456789"
    assert attached.wait() == 0


def test_services_begin_and_end_with_each_run_of_a_sandbox(python_box: Box) -> None:
    up = command_ready("test -e ../up-$FLEETCTL_RUN")
    beats = [shell("echo begun >>../beats; touch ../up-$FLEETCTL_RUN; exec sleep 600", ready=up)]
    order = python_box.order(mode="python", argv=[], code="print(1)", services=beats)
    order |= {"reusable": True, "linger_s": 60.0}
    assert python_box.told(order).ended["open"] is True
    assert python_box.told({**order, "run": "run-1"}).ended["ok"]
    assert read_text(python_box.directory / "beats") == "begun\n" * 2
    python_box.leave()
