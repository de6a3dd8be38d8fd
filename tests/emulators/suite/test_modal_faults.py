"""What the emulator breaks on purpose, and what the real SDK makes of it.

Each test also says what had happened in truth, since that is what a provider gets wrong.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import modal
import pytest

from tests.emulators.driving.modal import Driver, eventually
from tests.emulators.modal.running import ModalEmulator
from tests.living import alive


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with ModalEmulator() as running:
        yield running


@pytest.fixture
def driver(
    emulator: ModalEmulator, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Driver]:
    monkeypatch.setenv("MODAL_MAX_THROTTLE_WAIT", "0")
    with Driver(emulator, request.node.name) as driver:
        driver.image.build(driver.app)
        yield driver
        emulator.do("clear_faults")


def live(driver: Driver) -> list[dict[str, Any]]:
    return [one for one in driver.emulator.live() if one["app_id"] == driver.app.app_id]


@pytest.mark.parametrize("options", [{}, {"gpu": "T4"}], ids=["v2", "v1"])
def test_an_unanswered_create_is_repeated_and_makes_one_sandbox(
    driver: Driver, options: Any
) -> None:
    driver.emulator.do("fault", rpc="SandboxCreate*", status="UNAVAILABLE", when="after", count=2)
    sandbox = driver.sandbox("sleep", "1000", **options)
    assert [one["sandbox_id"] for one in live(driver)] == [sandbox.object_id]


def test_a_create_that_failed_before_its_effect_is_repeated(driver: Driver) -> None:
    driver.emulator.do("fault", rpc="SandboxCreateV2", status="INTERNAL", count=2)
    sandbox = driver.sandbox("sleep", "1000")
    assert [one["sandbox_id"] for one in live(driver)] == [sandbox.object_id]


def test_a_create_whose_outcome_stays_unknown_leaves_a_sandbox_that_has_a_name(
    driver: Driver,
) -> None:
    driver.emulator.do("fault", rpc="SandboxCreateV2", status="UNAVAILABLE", when="after", count=9)
    with pytest.raises(modal.exception.ServiceError):
        driver.sandbox("sleep", "1000", name="orphan", tags={"owner": "me"})
    found = modal.Sandbox.from_name(driver.name, "orphan", client=driver.client)
    assert found.get_tags() == {"owner": "me"}
    assert [one["sandbox_id"] for one in live(driver)] == [found.object_id]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("401", modal.exception.AuthError),
        ("403", modal.exception.PermissionDeniedError),
        ("404", modal.exception.UnimplementedError),
    ],
)
def test_the_sdk_takes_a_gateways_page_for_a_word_of_the_service(
    driver: Driver, status: str, kind: type[Exception]
) -> None:
    driver.emulator.do("fault", rpc="SandboxCreateV2", status=f"PAGE_{status}")
    with pytest.raises(kind, match=f"Received :status = '{status}'"):
        driver.sandbox("true")
    assert live(driver) == []


def test_throttling_and_a_limit_are_told_apart_by_the_retry_policy(driver: Driver) -> None:
    throttled = {"rpc": "SandboxCreateV2", "status": "RESOURCE_EXHAUSTED", "retry_after_s": 0.2}
    driver.emulator.do("fault", **throttled)
    with pytest.raises(modal.exception.ResourceExhaustedError):
        driver.sandbox("true")
    pytest.MonkeyPatch().setenv("MODAL_MAX_THROTTLE_WAIT", "5")
    driver.emulator.do("fault", **throttled)
    began = time.monotonic()
    driver.sandbox("sleep", "1000")
    assert time.monotonic() - began >= 0.2
    driver.emulator.do("fault", rpc="SandboxCreateV2", status="RESOURCE_EXHAUSTED", message="limit")
    with pytest.raises(modal.exception.ResourceExhaustedError, match="limit"):
        driver.sandbox("true")
    assert len(live(driver)) == 1


def test_a_preempted_sandbox_looks_like_a_clean_exit(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000", gpu="A100")
    eventually(lambda: driver.emulator.sandbox(sandbox.object_id)["pid"])
    pid = driver.emulator.sandbox(sandbox.object_id)["pid"]
    driver.emulator.do("preempt", sandbox_id=sandbox.object_id)
    sandbox.wait()
    assert sandbox.returncode == 0
    assert not alive(pid)
    truth = driver.emulator.sandbox(sandbox.object_id)
    assert truth["ending"] == "GENERIC_STATUS_INTERNAL_FAILURE"


def test_every_call_takes_as_long_as_is_asked(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    driver.emulator.do("latency", seconds=0.2)
    driver.emulator.do("latency", seconds=0.6, rpc="SandboxTagsGetV2")
    began = time.monotonic()
    sandbox.poll()
    middle = time.monotonic()
    sandbox.get_tags()
    assert middle - began >= 0.2
    assert time.monotonic() - middle >= 0.6


def test_a_call_that_hangs_holds_up_nobody_else(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    driver.emulator.do("fault", rpc="SandboxTagsGetV2", delay_s=3600)
    waiting = driver.client  # the same connection serves both
    done = threading.Event()
    thread = threading.Thread(target=lambda: (sandbox.get_tags(), done.set()))
    thread.start()
    try:
        eventually(lambda: driver.emulator.state()["faults"][0]["hits"])
        assert modal.Sandbox.from_id(sandbox.object_id, client=waiting).poll() is None
        assert not done.is_set()
    finally:
        driver.emulator.do("release")
        thread.join()
    assert done.is_set()


def test_a_cut_control_connection_is_made_anew(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    driver.emulator.do("lose", endpoint="control", refuse_s=0.2)

    def found() -> modal.Sandbox | None:
        try:
            return modal.Sandbox.from_id(sandbox.object_id, client=driver.client)
        except modal.exception.ConnectionError:  # the SDK tries again for less than a second
            return None

    eventually(found)
    assert sandbox.poll() is None
    driver.emulator.do("fault", rpc="SandboxTagsGetV2", status="DISCONNECT")
    assert sandbox.get_tags() == {}


def test_a_wrong_token_and_one_without_access_have_errors_of_their_own(driver: Driver) -> None:
    wrong = driver.emulator.client("ak-wrong", "as-wrong")
    with pytest.raises(modal.exception.AuthError):
        modal.App.lookup("any", client=wrong, create_if_missing=True)
    barred = driver.emulator.client("ak-no-access", "as-any")
    with pytest.raises(modal.exception.PermissionDeniedError):
        modal.App.lookup("any", client=barred, create_if_missing=True)
    names = {app["name"] for app in driver.emulator.state()["apps"]}
    assert "any" not in names


def test_the_log_has_every_call_with_its_outcome(driver: Driver) -> None:
    driver.sandbox("true").wait()  # so that nothing has to be asked for first
    driver.emulator.do("clear_log")
    driver.emulator.do("fault", rpc="SandboxTerminateV2", status="INTERNAL")
    sandbox = driver.sandbox("sleep", "1000")
    sandbox.terminate()
    calls = [(one["rpc"], one["status"]) for one in driver.emulator.log()]
    assert calls == [
        ("SandboxCreateV2", "OK"),
        ("SandboxTerminateV2", "INTERNAL"),
        ("SandboxTerminateV2", "OK"),
    ]
    assert driver.emulator.rpcs()["SandboxTerminateV2"] == 2


def test_a_setting_that_does_not_exist_is_refused(emulator: ModalEmulator) -> None:
    with pytest.raises(RuntimeError, match="there is no setting `nonsense`"):
        emulator.do("settings", nonsense=1)


def test_without_namespaces_commands_run_builds_do_not_and_the_truth_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EMULATED_BOXES_PLAIN", "1")
    with ModalEmulator() as emulator, Driver(emulator, "plain") as driver:
        assert emulator.state()["isolated"] is False
        assert emulator.state()["problem"] == "asked for"
        driver.image = driver.image.run_commands(f"touch {tmp_path}/of-the-build")
        sandbox = driver.sandbox("sh", "-c", "echo here; exit 4")
        assert sandbox.stdout.read() == "here\n"
        sandbox.wait()
        assert sandbox.returncode == 4
        assert list(tmp_path.iterdir()) == []
        sleeper = driver.sandbox("sh", "-c", "setsid sleep 1000 & sleep 1000")
        assert sleeper.exec("echo", "second").stdout.read() == "second\n"
        pid = emulator.sandbox(sleeper.object_id)["pid"]
        sleeper.terminate(wait=True)
        assert not alive(pid)


def test_nothing_of_the_emulator_is_left_when_it_is_killed(tmp_path: Path) -> None:
    emulator = ModalEmulator(tmp_path / "own")
    emulator.directory.mkdir()
    emulator.start()
    with pytest.MonkeyPatch().context() as patch:
        for name, value in emulator.env.items():
            patch.setenv(name, value)
        client = emulator.client()
        app = modal.App.lookup("any", client=client, create_if_missing=True)
        sandbox = modal.Sandbox.create(
            "sleep", "1000", app=app, image=modal.Image.debian_slim(), client=client
        )
        eventually(lambda: emulator.sandbox(sandbox.object_id)["pid"])
        truth = emulator.sandbox(sandbox.object_id)
        emulator.kill()
        eventually(lambda: not alive(truth["pid"]))
        eventually(lambda: not Path(truth["root"]).exists())
        emulator.stop()
        client.close()
