"""The work of an attempt as a job of a Ray cluster that is there already."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.guest.nodes import rayjob
from fleetctl.specs.blocks.nodes import ONE, Ray, with_nodes
from fleetctl.specs.blocks.template import Template
from tests.contracts.local_worlds import LocalWorld, stop_supervisors
from tests.contracts.provider_worlds import World, script, story
from tests.inside import show_checkout
from tests.training.rayjobs import CUT, RayJobs


@pytest.fixture
def cluster() -> Iterator[RayJobs]:
    made = RayJobs()
    yield made
    made.close()


class TestJob:
    """The job by itself, without anybody who keeps the run."""

    @pytest.fixture(autouse=True)
    def _soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rayjob, "POLL_S", 0.005)
        monkeypatch.setattr(rayjob, "PAUSE_MAX_S", 0.01)

    def job(self, cluster: RayJobs, *argv: str, **variables: str) -> rayjob.Job:
        asked = {"address": cluster.address, "names": ["OWN", "RAY_AUTH_TOKEN"], "unit": "uid/0"}
        return rayjob.Job(asked, argv, {"FLEETCTL_RUN": "fl-x", "HOME": "/here", **variables})

    def test_odd_answers_decide_nothing(
        self, cluster: RayJobs, capfd: pytest.CaptureFixture[str]
    ) -> None:
        # The submission is carried out, and nobody hears of it; then of its state and its log.
        cluster.odd = [503, 404, 503, 404, 503, CUT, CUT, 200, 503, CUT, 404, 200, CUT]
        text = "echo one; sleep 0.2; echo 'two  words'; exit 7"
        assert self.job(cluster, "sh", "-c", text).lead() == 7
        assert len(cluster.jobs) == 1
        assert capfd.readouterr().out == "one\ntwo  words\n"

    def test_a_second_submission_of_a_run_is_the_same_job(
        self, cluster: RayJobs, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert [self.job(cluster, "echo", "once").lead() for _ in range(2)] == [0, 0]
        assert (len(cluster.jobs), cluster.submissions) == (1, ["fl-x", "fl-x"])
        assert capfd.readouterr().out == "once\nonce\n"  # its log again, not its work

    def test_the_work_has_its_own_variables_and_not_those_of_this_machine(
        self, cluster: RayJobs
    ) -> None:
        cluster.token = "secret"
        own = {"OWN": "a b", "TASK_LR": "1", "RAY_AUTH_TOKEN": "secret"}
        assert self.job(cluster, "true", **own).lead() == 0
        told = cluster.jobs["fl-x"].request["runtime_env"]["env_vars"]
        assert told == {"FLEETCTL_RUN": "fl-x", "OWN": "a b", "TASK_LR": "1"}

    def test_the_job_of_a_lost_attempt_is_ended_before_the_next_begins(
        self, cluster: RayJobs
    ) -> None:
        assert self.job(cluster, "sleep", "60", FLEETCTL_RUN="fl-w")._submit()  # then it was lost
        others = self.job(cluster, "sleep", "60", FLEETCTL_RUN="fl-other")
        others._request["metadata"] = {"fleetctl-unit": "uid/1"}
        assert others._submit()
        cluster.odd = [503, CUT, 404]
        check = 'test "$FLEETCTL_ATTEMPT" = 2'
        assert self.job(cluster, "sh", "-c", check, FLEETCTL_ATTEMPT="2").lead() == 0
        assert {*cluster.stops} == {"fl-w"}  # asked again where a reply was cut
        states = {name: job.details()["status"] for name, job in cluster.jobs.items()}
        assert states == {"fl-w": "STOPPED", "fl-other": "RUNNING", "fl-x": "SUCCEEDED"}

    def test_a_cluster_that_refuses_is_asked_three_times(self, cluster: RayJobs) -> None:
        cluster.token = "secret"
        with pytest.raises(
            rayjob._RayJobFailed, match="does not take the job: HTTP 401 Unauthorized"
        ):
            self.job(cluster, "true", RAY_AUTH_TOKEN="other").lead()
        assert cluster.jobs == {}

    def test_no_answer_and_a_forgotten_job_have_limits(
        self, cluster: RayJobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rayjob, "GONE_S", 0.05)
        monkeypatch.setattr(rayjob, "SILENT_S", 0.05)
        job = self.job(cluster, "sleep", "60")
        assert job._submit()
        known = cluster.jobs.pop("fl-x")
        with pytest.raises(rayjob._RayJobFailed, match="knows no job `fl-x` any more"):
            job.lead_on()
        cluster.jobs["fl-x"] = known
        cluster.odd = [503] * 1000
        with pytest.raises(rayjob._RayJobFailed, match="does not report the job: HTTP 503"):
            job.lead_on()

    def test_what_was_stopped_at_the_cluster_is_told_from_the_work(self, cluster: RayJobs) -> None:
        job = self.job(cluster, "sleep", "60")
        assert job._submit()
        cluster.post(["fl-x", "stop"], None)
        with pytest.raises(rayjob._RayJobFailed, match="was stopped at the Ray cluster"):
            job.lead()


class TestOnLocal:
    @pytest.fixture(autouse=True)
    def _supervisors(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        show_checkout(monkeypatch)
        yield
        stop_supervisors(tmp_path / "home")

    def world(self, tmp_path: Path) -> LocalWorld:
        return LocalWorld(tmp_path)

    @story
    async def test_the_attempt_ends_as_the_job_does_and_term_reaches_it(self, world: World) -> None:
        cluster = RayJobs()
        try:
            seen = await world.ended(await world.start(at(cluster, "echo $OWN; exit 7")))
            assert (seen.ok, seen.reason, seen.exit_code) == (False, "ExitCode:7", 7)
            assert cluster.submissions == ["run-0"]
            ref = await world.start(
                at(cluster, "echo $OWN-$TASK_LR; sleep 600"),
                run="run-1",
                template_hash="h1",
                params={"lr": 3},
            )
            await world.log_holds(ref, b"mine-3\n")  # while it runs
            await world.provider.stop(ref, grace_s=60.0)
            assert (await world.ended(ref)).reason == "Stopped"
            assert cluster.stops == ["run-1"]
            assert cluster.jobs["run-1"].process.poll() is not None
            cluster.token = "secret"
            refused = await world.run(at(cluster, "true"), run="run-2", template_hash="h2")
            assert refused.reason == "RayFailed"
            assert "HTTP 401" in refused.message
        finally:
            cluster.close()


def at(cluster: RayJobs, text: str) -> Template:
    made = script(text, env={"OWN": "mine"})
    return with_nodes(made, ONE, None, Ray(address=cluster.address))
