"""The life of sandboxes under the real synchronous SDK: what it is told, and what is true."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from daytona import (
    CreateSandboxFromImageParams,
    CreateSandboxFromSnapshotParams,
    Daytona,
    DaytonaConfig,
    ListSandboxesQuery,
    Resources,
    VolumeMount,
)
from daytona.common.errors import (
    DaytonaAuthenticationError,
    DaytonaBadRequestError,
    DaytonaConflictError,
    DaytonaForbiddenError,
    DaytonaNotFoundError,
)

from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.daytona.settings import API_KEY_WITHOUT_ACCESS
from tests.emulators.driving.daytona import until_state, wait_until
from tests.living import alive


@pytest.fixture(scope="module")
def daytona(server: DaytonaEmulator) -> Daytona:
    return Daytona()


def named(name: str, **params: object) -> CreateSandboxFromSnapshotParams:
    return CreateSandboxFromSnapshotParams(name=name, **params)  # type: ignore[arg-type]


def test_a_created_sandbox_is_a_live_box_until_it_is_deleted(
    daytona: Daytona,
    emulator: DaytonaEmulator,
) -> None:
    sandbox = daytona.create(named("lives", labels={"run": "7"}, env_vars={"A": "b"}))
    assert emulator.sandbox("lives")["state"] == "started"
    assert (sandbox.name, sandbox.labels["run"]) == ("lives", "7")
    assert (sandbox.cpu, sandbox.memory, sandbox.disk) == (1, 1, 3)
    (pid, *_others) = emulator.sandbox("lives")["pids"]
    assert alive(pid)
    sandbox.delete(wait=True)
    # Its object may still say `destroying`: an earlier event may be read late, by another thread.
    assert emulator.sandbox(sandbox.id)["state"] == "destroyed"
    assert emulator.sandbox(sandbox.id)["pids"] == []
    assert not alive(pid)
    assert not Path(emulator.sandbox(sandbox.id)["directory"]).exists()
    with pytest.raises(DaytonaNotFoundError):
        daytona.get(sandbox.id)


def test_a_name_is_taken_by_one_sandbox_until_its_delete_is_accepted(
    daytona: Daytona,
    emulator: DaytonaEmulator,
) -> None:
    first = daytona.create(named("taken"))
    with pytest.raises(DaytonaConflictError):
        daytona.create(named("taken"))
    first.delete()
    second = daytona.create(named("taken"))
    assert daytona.get("taken").id == second.id != first.id
    second.delete(wait=True)


def test_files_survive_a_stop_and_processes_do_not(
    daytona: Daytona,
    emulator: DaytonaEmulator,
) -> None:
    sandbox = daytona.create(named("stops"))
    sandbox.process.exec("echo kept > note; (sleep 1000 &) >/dev/null 2>&1")
    before = emulator.sandbox("stops")["pids"]
    sandbox.stop()
    stopped = emulator.sandbox("stops")
    assert (stopped["state"], stopped["pids"]) == ("stopped", [])
    assert not any(alive(pid) for pid in before)
    sandbox.start()
    assert sandbox.process.exec("cat note").result == "kept\n"
    sandbox.delete(wait=True)


def test_an_archived_sandbox_comes_back_with_its_files(daytona: Daytona) -> None:
    sandbox = daytona.create(named("archived"))
    sandbox.process.exec("echo kept > note")
    sandbox.stop()
    sandbox.archive()
    until_state(sandbox, "archived")
    sandbox.start()
    assert sandbox.process.exec("cat note").result == "kept\n"
    sandbox.delete(wait=True)


def test_pausing_freezes_what_runs(daytona: Daytona, emulator: DaytonaEmulator) -> None:
    sandbox = daytona.create(named("pauses"))
    sandbox.process.create_session("s")
    from daytona import SessionExecuteRequest

    endless = "while true; do echo x >> ticks; sleep 0.01; done"
    sandbox.process.execute_session_command(
        "s", SessionExecuteRequest(command=endless, run_async=True)
    )
    ticks = Path(emulator.sandbox("pauses")["directory"]) / "root/home/daytona/ticks"
    wait_until(ticks.exists)
    sandbox.pause()
    until_state(sandbox, "paused")
    pids = emulator.sandbox("pauses")["pids"][1:]
    wait_until(lambda: all(_frozen(pid) for pid in pids))
    sandbox.start()
    size = ticks.stat().st_size
    wait_until(lambda: ticks.stat().st_size > size, what="the thaw")
    sandbox.delete(wait=True)


def _frozen(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"


def test_a_stopped_ephemeral_sandbox_is_gone(
    daytona: Daytona,
    emulator: DaytonaEmulator,
) -> None:
    sandbox = daytona.create(named("ephemeral", ephemeral=True))
    sandbox.stop()
    wait_until(lambda: emulator.sandbox(sandbox.id)["state"] == "destroyed")
    with pytest.raises(DaytonaNotFoundError):
        daytona.get("ephemeral")


def test_settings_are_kept_and_labels_are_replaced_as_a_whole(daytona: Daytona) -> None:
    sandbox = daytona.create(named("settings", labels={"old": "1"}))
    assert sandbox.set_labels({"new": "2"}) == {"new": "2"}
    sandbox.set_autostop_interval(30)
    sandbox.set_auto_archive_interval(60)
    sandbox.set_auto_delete_interval(120)
    sandbox.set_public(True)
    sandbox.set_ttl(10)
    sandbox.update_network_settings(network_block_all=True, domain_allow_list="example.com")
    sandbox.refresh_activity()
    again = daytona.get("settings")
    assert again.labels == {"new": "2"}
    assert (again.auto_stop_interval, again.auto_archive_interval) == (30, 60)
    assert (again.auto_delete_interval, again.public, again.network_block_all) == (120, True, True)
    assert again.domain_allow_list == "example.com"
    assert again.auto_destroy_at is not None
    sandbox.set_auto_delete_interval(-1)
    sandbox.set_ttl(0)
    again.refresh_data()
    assert (again.auto_delete_interval, again.auto_destroy_at) == (-1, None)
    sandbox.delete(wait=True)


def test_the_environment_is_that_of_the_create(daytona: Daytona) -> None:
    sandbox = daytona.create(named("environment", env_vars={"COLOUR": "green"}))
    assert sandbox.process.exec("echo $COLOUR; echo $HOME").result == "green\n/home/daytona\n"
    sandbox.delete(wait=True)


def test_a_list_is_filtered_by_labels_states_and_name_and_comes_in_pages(daytona: Daytona) -> None:
    made = [daytona.create(named(f"listed-{n}", labels={"of": "list"})) for n in range(5)]
    made[0].stop()
    found = list(daytona.list(ListSandboxesQuery(labels={"of": "list"}, limit=2)))
    assert {one.id for one in found} == {one.id for one in made}
    assert len(found) == 5
    stopped = list(daytona.list(ListSandboxesQuery(labels={"of": "list"}, states=["stopped"])))
    assert [one.name for one in stopped] == ["listed-0"]
    assert [one.name for one in daytona.list(ListSandboxesQuery(name="listed-3"))] == ["listed-3"]
    assert list(daytona.list(ListSandboxesQuery(labels={"of": "others"}))) == []
    for one in made:
        one.delete(wait=True)
    assert list(daytona.list(ListSandboxesQuery(labels={"of": "list"}))) == []


def test_volumes_are_mounted_shared_and_kept_while_they_are_used(
    daytona: Daytona,
    emulator: DaytonaEmulator,
) -> None:
    emulator.set(durations_s={"volume.creating": 3600.0})
    volume = daytona.volume.get("shared", create=True)
    with pytest.raises(DaytonaBadRequestError, match="not in a ready state"):
        daytona.create(named("early", volumes=[VolumeMount(volume_id="shared", mount_path="/d")]))
    wait_until(lambda: daytona.volume.get("shared").state == "creating")
    emulator.set(durations_s={"volume.creating": 0.05})
    emulator.advance(3600.0)
    wait_until(lambda: daytona.volume.get("shared").state == "ready")
    mount = VolumeMount(volume_id=volume.id, mount_path="/home/daytona/memory")
    part = VolumeMount(volume_id="shared", mount_path="/part", subpath="sub")
    one = daytona.create(named("one", volumes=[mount]))
    two = daytona.create(named("two", volumes=[mount, part]))
    one.process.exec("mkdir -p memory/sub && echo hello > memory/sub/note")
    assert two.process.exec("cat memory/sub/note /part/note").result == "hello\nhello\n"
    with pytest.raises(DaytonaConflictError):
        daytona.volume.delete(volume)
    one.delete(wait=True)
    two.delete(wait=True)
    daytona.volume.delete(volume)
    wait_until(lambda: daytona.volume.list() == [])
    assert not Path(emulator.state()["volumes"][-1]["directory"]).exists()


def test_a_volumes_name_is_taken_once_and_free_after_its_end(daytona: Daytona) -> None:
    volume = daytona.volume.create("again")
    with pytest.raises(DaytonaBadRequestError, match="already exists"):
        daytona.volume.create("again")
    wait_until(lambda: daytona.volume.get("again").state == "ready")
    daytona.volume.delete(volume)
    wait_until(lambda: "again" not in [one.name for one in daytona.volume.list()])
    with pytest.raises(DaytonaNotFoundError):
        daytona.volume.get("again")


@pytest.mark.parametrize("path", ["data", "/", "/a/../b", "/etc/x", "/proc"])
def test_a_volume_is_not_mounted_where_it_may_not_be(daytona: Daytona, path: str) -> None:
    daytona.volume.get("mountable", create=True)
    wait_until(lambda: daytona.volume.get("mountable").state == "ready")
    mount = VolumeMount(volume_id="mountable", mount_path=path)
    with pytest.raises(DaytonaBadRequestError, match="Invalid mount path"):
        daytona.create(named("nowhere", volumes=[mount]))


def test_secrets_are_in_the_sandbox_as_placeholders_only(daytona: Daytona) -> None:
    from daytona import CreateSecretParams

    secret = daytona.secret.create(CreateSecretParams(name="token", value="very-secret"))
    assert [one.name for one in daytona.secret.list().items] == ["token"]
    sandbox = daytona.create(named("secretive", secrets={"TOKEN": "token"}))
    assert sandbox.process.exec("echo $TOKEN").result == secret.placeholder + "\n"
    with pytest.raises(DaytonaBadRequestError, match="Secrets not found"):
        daytona.create(named("secretive-2", secrets={"TOKEN": "other"}))
    sandbox.delete(wait=True)
    daytona.secret.delete(secret.id)
    assert daytona.secret.list().total == 0


def test_a_fork_has_its_own_copy_of_the_files(
    daytona: Daytona,
    emulator: DaytonaEmulator,
) -> None:
    parent = daytona.create(named("parent"))
    parent.process.exec("echo one > note")
    child = parent.fork(name="child")
    assert (child.name, emulator.sandbox(child.id)["state"]) == ("child", "started")
    child.process.exec("echo two > note")
    assert parent.process.exec("cat note").result == "one\n"
    child.delete(wait=True)
    parent.delete(wait=True)


def test_a_snapshot_of_a_sandbox_begins_others_with_its_files(daytona: Daytona) -> None:
    sandbox = daytona.create(named("original"))
    sandbox.process.exec("echo precious > /home/daytona/note")
    sandbox.create_snapshot("taken-from-it")
    until_state(sandbox, "started")
    assert daytona.snapshot.get("taken-from-it").source_sandbox_id == sandbox.id
    sandbox.delete(wait=True)
    copy = daytona.create(named("copy", snapshot="taken-from-it"))
    assert copy.process.exec("cat note").result == "precious\n"
    copy.delete(wait=True)
    daytona.snapshot.delete("taken-from-it")


def test_resizing_is_within_the_rules(daytona: Daytona, emulator: DaytonaEmulator) -> None:
    sandbox = daytona.create(named("grows"))

    def resize_to(state: str, **sizes: int) -> None:
        # An event that comes late may let the SDK believe that the change is over already.
        sandbox.resize(Resources(**sizes))
        wait_until(lambda: emulator.sandbox("grows")["state"] == state)

    resize_to("started", cpu=2, memory=2)
    assert (sandbox.cpu, sandbox.memory) == (2, 2)
    with pytest.raises(DaytonaBadRequestError):
        sandbox.resize(Resources(disk=5))
    sandbox.stop()
    resize_to("stopped", disk=5)
    assert sandbox.disk == 5
    with pytest.raises(DaytonaBadRequestError, match="only be increased"):
        sandbox.resize(Resources(disk=4))
    sandbox.delete(wait=True)


def test_previews_lead_to_the_port_and_need_their_token(daytona: Daytona) -> None:
    sandbox = daytona.create(named("previewed"))
    script = (
        "import http.server as h\n"
        "s = h.ThreadingHTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler)\n"
        "open('port', 'w').write(str(s.server_port)); s.serve_forever()"
    )
    sandbox.process.exec(f'mkdir -p web && cd web && (python3 -c "{script}" >/dev/null 2>&1 &)')
    port = wait_until(lambda: sandbox.process.exec("cat web/port 2>/dev/null").result)
    link = sandbox.get_preview_link(int(port))
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{link.url}/port")
    assert refused.value.code == 401
    asked = Request(f"{link.url}/port", headers={"x-daytona-preview-token": link.token})
    assert urlopen(asked).read().decode() == port
    signed = sandbox.create_signed_preview_url(int(port), expires_in_seconds=60)
    assert urlopen(f"{signed.url}/port").read().decode() == port
    sandbox.expire_signed_preview_url(int(port), signed.token)
    with pytest.raises(HTTPError):
        urlopen(f"{signed.url}/port")
    sandbox.delete(wait=True)


def test_ssh_access_is_granted_for_a_while_and_revoked(
    daytona: Daytona,
    emulator: DaytonaEmulator,
) -> None:
    sandbox = daytona.create(named("ssh", auto_stop_interval=0))
    access = sandbox.create_ssh_access(expires_in_minutes=5)
    assert sandbox.validate_ssh_access(access.token).valid
    emulator.advance(6 * 60)
    assert not sandbox.validate_ssh_access(access.token).valid
    other = sandbox.create_ssh_access()
    sandbox.revoke_ssh_access(other.token)
    assert not sandbox.validate_ssh_access(other.token).valid
    sandbox.delete(wait=True)


def test_a_warm_pool_hands_a_started_sandbox_over(
    daytona: Daytona,
    emulator: DaytonaEmulator,
) -> None:
    pool = daytona.warm_pool.create("daytona-medium", 1)
    wait_until(lambda: daytona.warm_pool.list()[0].current_size == 1)
    (waiting,) = [one for one in emulator.state()["live"] if one["warm_pool_id"] == pool.id]
    sandbox = daytona.create(named("claimed", snapshot="daytona-medium"))
    assert (sandbox.id, sandbox.cpu) == (waiting["id"], 2)
    daytona.warm_pool.delete(pool.id)
    sandbox.delete(wait=True)
    wait_until(lambda: emulator.state()["live"] == [])


def test_a_wrong_key_is_401_and_one_without_access_403(server: DaytonaEmulator) -> None:
    url = os.environ["DAYTONA_API_URL"]
    with pytest.raises(DaytonaAuthenticationError):
        Daytona(DaytonaConfig(api_key="wrong", api_url=url, target="us")).get("any")
    with pytest.raises(DaytonaForbiddenError):
        key = API_KEY_WITHOUT_ACCESS
        Daytona(DaytonaConfig(api_key=key, api_url=url, target="us")).get("any")


def test_resources_go_with_an_image_and_never_with_a_snapshot(daytona: Daytona) -> None:
    params = CreateSandboxFromImageParams(image="debian:12", resources=Resources(cpu=2, memory=3))
    sandbox = daytona.create(params)
    assert (sandbox.cpu, sandbox.memory, sandbox.disk) == (2, 3, 3)
    sandbox.delete(wait=True)


def test_metrics_fall_back_to_the_api_where_there_is_no_analytics(daytona: Daytona) -> None:
    sandbox = daytona.create(named("measured"))
    (sample,) = sandbox.get_metrics()
    assert (sample.cpu_count, sample.mem_total) == (1, 1 << 30)
    sandbox.delete(wait=True)


def test_polling_clients_work_without_events(server: DaytonaEmulator) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        polling = Daytona(DaytonaConfig(use_deprecated_polling=True))
    sandbox = polling.create(named("polled"))
    until_state(sandbox, "started")
    sandbox.delete(wait=True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"cpu": "1"}, "cpu must be an integer number"),
        ({"labels": {"a": 1}}, "labels must be an object of strings"),
        ({"public": "yes"}, "public must be a boolean value"),
        ({"volumes": [{"volumeId": 7}]}, "volumes must be of the described shape"),
        ([], "the body must be an object"),
    ],
)
def test_a_body_of_the_wrong_shape_is_a_400_that_names_the_field(
    emulator: DaytonaEmulator,
    body: object,
    said: str,
) -> None:
    headers = {"Authorization": f"Bearer {emulator.env['DAYTONA_API_KEY']}"}
    url = f"{emulator.env['DAYTONA_API_URL']}/sandbox"
    with pytest.raises(HTTPError) as refused:
        urlopen(Request(url, method="POST", data=json.dumps(body).encode(), headers=headers))
    document = json.loads(refused.value.read())
    assert (document["statusCode"], refused.value.code) == (400, 400)
    assert said in document["message"]
