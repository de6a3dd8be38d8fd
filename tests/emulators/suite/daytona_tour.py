"""One of every call of Daytona's control plane, through the pinned client's generated classes.

Used by test_daytona_conformance.py, and as a program to compare the answers with a
published API specification, which is no part of this project:

    python -m tests.emulators.suite.daytona_tour api.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import daytona_api_client as api

from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.daytona.specification import problems
from tests.emulators.driving.daytona import wait_until


@dataclass(frozen=True, slots=True)
class Answer:
    """`data` is what the client's model made of the body, `raw` the body itself."""

    operation: str
    status: int
    data: Any
    raw: bytes


class Tour:
    """Makes the calls; `answers` are those of them all, in their order."""

    def __init__(self, emulator: DaytonaEmulator) -> None:
        client = api.ApiClient(api.Configuration(host=emulator.env["DAYTONA_API_URL"]))
        client.default_headers["Authorization"] = f"Bearer {emulator.env['DAYTONA_API_KEY']}"
        self._emulator = emulator
        self.answers: list[Answer] = []
        self._sandboxes = api.SandboxApi(client)
        self._client = client

    def make(self) -> list[Answer]:
        self.organization()
        self.volumes()
        self.secrets()
        self.snapshots()
        self.warm_pools()
        self.sandboxes()
        self.previews()
        self.builds()
        self.kinship()
        return self.answers

    def call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """`method` is one of a generated class; its twin that also tells the body is called."""
        owner: Any = method.__self__  # type: ignore[attr-defined]
        twin = getattr(owner, f"{method.__name__}_with_http_info")
        answer = twin(*arguments, **options)
        operation = _camel(method.__name__)
        self.answers.append(Answer(operation, answer.status_code, answer.data, answer.raw_data))
        return answer.data

    def organization(self) -> None:
        call, client = self.call, self._client
        call(api.ConfigApi(client).config_controller_get_config)
        call(api.HealthApi(client).health_controller_live)
        call(api.HealthApi(client).health_controller_check)
        ours = api.OrganizationsApi(client)
        organization = call(ours.list_organizations)[0].id
        call(ours.get_organization, organization)
        call(ours.get_organization_usage_overview, organization)
        call(ours.list_available_sandbox_classes, organization)
        call(api.RegionsApi(client).list_shared_regions)
        call(ours.list_available_regions)
        call(ours.get_region_by_id, "us")
        call(api.ApiKeysApi(client).get_current_api_key)
        call(api.UsersApi(client).get_authenticated_user)
        call(api.ObjectStorageApi(client).get_push_access)

    def volumes(self) -> None:
        volumes = api.VolumesApi(self._client)
        made = self.call(volumes.create_volume, api.CreateVolume(name="tour"))
        wait_until(lambda: self.call(volumes.get_volume, made.id).state == "ready")
        self.call(volumes.get_volume_by_name, "tour")
        self.call(volumes.list_volumes)
        self.call(volumes.delete_volume, made.id)

    def secrets(self) -> None:
        secrets = api.SecretApi(self._client)
        wanted = api.CreateSecret(name="tour", value="s3cret", hosts=["example.com"])
        made = self.call(secrets.create_secret, wanted)
        self.call(secrets.get_secret, made.id)
        self.call(secrets.list_secrets)
        self.call(secrets.list_secrets_paginated, limit=1)
        self.call(secrets.update_secret, made.id, api.UpdateSecret(description="of the tour"))
        self.call(secrets.delete_secret, made.id)

    def snapshots(self) -> None:
        snapshots = api.SnapshotsApi(self._client)
        build = api.CreateBuildInfo(dockerfile_content="FROM debian:12\nRUN echo hello\n")
        made = self.call(snapshots.create_snapshot, api.CreateSnapshot(name="t", build_info=build))
        wait_until(lambda: self.call(snapshots.get_snapshot, made.id).state == "active")
        self.call(snapshots.get_all_snapshots, page=1, limit=2)
        self.call(snapshots.get_snapshot_build_logs_url, made.id)
        self.call(snapshots.get_snapshot_build_logs, made.id, follow=False)
        self.call(snapshots.deactivate_snapshot, made.id)
        self.call(snapshots.activate_snapshot, made.id)
        self.call(snapshots.remove_snapshot, made.id)
        named = api.CreateSnapshot(name="named", image_name="debian:12", gpu=1, gpu_type=["H100"])
        self.call(snapshots.create_snapshot, named)

    def warm_pools(self) -> None:
        pools = api.WarmPoolsApi(self._client)
        wanted = api.CreateWarmPool(snapshot="daytona-medium", pool=1)
        made = self.call(pools.create_warm_pool, wanted)
        wait_until(lambda: self.call(pools.list_warm_pools)[0].current_size == 1)
        self.call(pools.update_warm_pool, made.id, api.UpdateWarmPool(pool=0))
        self.call(pools.delete_warm_pool, made.id)

    def sandbox(self, **wanted: Any) -> str:
        return str(self.call(self._sandboxes.create_sandbox, api.CreateSandbox(**wanted)).id)

    def until(self, sandbox: str, state: str) -> None:
        there = lambda: self.call(self._sandboxes.get_sandbox, sandbox).state == state  # noqa: E731
        wait_until(there, what=f"the state `{state}`")

    def sandboxes(self) -> None:
        of, call = self._sandboxes, self.call
        one = self.sandbox(name="tour", labels={"a": "b"}, ttl_minutes=60, auto_stop_interval=0)
        self.until(one, "started")
        call(of.list_sandboxes, labels=json.dumps({"a": "b"}), states=["started"], limit=1)
        call(of.replace_labels, one, api.SandboxLabels(labels={"c": "d"}))
        call(of.set_autostop_interval, one, 5)
        call(of.set_auto_pause_interval, one, 0)
        call(of.set_auto_archive_interval, one, 5)
        call(of.set_auto_delete_interval, one, 5)
        call(of.set_ttl, one, 5)
        call(of.update_public_status, one, True)
        call(of.update_last_activity, one, update_last_activity=api.UpdateLastActivity())
        closed = api.UpdateSandboxNetworkSettings(network_block_all=True)
        call(of.update_network_settings, one, closed)
        call(of.update_sandbox_secrets, one, api.UpdateSandboxSecrets(secrets=[]))
        call(of.get_organization_by_sandbox_id, one)
        call(of.get_region_quota_by_sandbox_id, one)
        now = datetime.now(timezone.utc)
        call(of.get_sandbox_metrics, one, var_from=now, to=now)
        call(of.create_backup, one)
        call(of.resize_sandbox, one, api.ResizeSandbox(cpu=2))
        self.until(one, "started")
        self.stop_and_go(one)
        call(of.delete_sandbox, one)

    def stop_and_go(self, one: str) -> None:
        of, call = self._sandboxes, self.call
        for step, state in (
            (of.pause_sandbox, "paused"),
            (of.start_sandbox, "started"),
            (of.stop_sandbox, "stopped"),
            (of.archive_sandbox, "archived"),
            (of.start_sandbox, "started"),
        ):
            call(step, one)
            self.until(one, state)
        self._emulator.lose(one, recoverable=True)
        call(of.recover_sandbox, one)
        self.until(one, "started")

    def previews(self) -> None:
        of, call = self._sandboxes, self.call
        one = self.sandbox(auto_delete_interval=0)
        self.until(one, "started")
        call(of.get_port_preview_url, one, 3000)
        signed = call(of.get_signed_port_preview_url, one, 3000)
        proxy = api.PreviewApi(self._client)
        call(proxy.get_sandbox_id_from_signed_preview_url_token, signed.token, 3000)
        call(of.expire_signed_port_preview_url, one, 3000, signed.token)
        call(proxy.is_sandbox_public, one)
        call(proxy.is_preview_warning_enabled, one)
        call(proxy.is_valid_auth_token, one, "no")
        call(proxy.has_sandbox_access, one)
        call(of.get_toolbox_proxy_url, one)
        call(of.get_sandbox_signing_key, one)
        call(of.rotate_signing_key, one)
        access = call(of.create_ssh_access, one, expires_in_minutes=5)
        call(of.validate_ssh_access, access.token)
        call(of.revoke_ssh_access, one, token=access.token)
        call(of.stop_sandbox, one)

    def builds(self) -> None:
        info = api.CreateBuildInfo(dockerfile_content="FROM debian:12\nRUN echo built\n")
        one = self.sandbox(build_info=info, cpu=1)
        self.call(self._sandboxes.get_build_logs_url, one)
        self.until(one, "started")
        self.call(self._sandboxes.get_build_logs, one, follow=False)
        self.call(self._sandboxes.delete_sandbox, one)

    def kinship(self) -> None:
        of, call = self._sandboxes, self.call
        parent = self.sandbox(name="parent")
        self.until(parent, "started")
        child = call(of.fork_sandbox, parent, api.ForkSandbox(name="child")).id
        self.until(child, "started")
        call(of.get_sandbox_forks, parent)
        call(of.get_sandbox_parent, child)
        call(of.get_sandbox_ancestors, child)
        call(of.create_sandbox_snapshot, child, api.CreateSandboxSnapshot(name="of-the-child"))
        self.until(child, "started")
        call(of.delete_sandbox, child)
        call(of.delete_sandbox, parent)


def _camel(name: str) -> str:
    """The operation's name in the specification, from a method's."""
    if "_controller_" in name:
        controller, verb = name.split("_controller_")
        first, *rest = verb.split("_")
        return f"{controller.title()}Controller_{first}{''.join(map(str.title, rest))}"
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


def main() -> None:
    document = json.loads(Path(sys.argv[1]).read_text())
    with DaytonaEmulator() as emulator:
        answers = Tour(emulator).make()
    found = {line for answer in answers for line in problems(document, answer.operation,
                                                            answer.status, answer.raw)}  # fmt: skip
    for line in sorted(found):
        print(line)
    operations = {answer.operation for answer in answers}
    print(f"{len(answers)} answers of {len(operations)} operations, {len(found)} differences")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
