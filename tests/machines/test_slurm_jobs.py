"""Provider `slurm` on a real Slurm: why jobs wait, how they end, what the scheduler is asked."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Alive
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.sandbox_access import ExecStreams, ExecTarget
from fleetctl.providers.slurm import slurm_login
from fleetctl.providers.slurm.slurm_access import SlurmEntering
from fleetctl.providers.slurm.slurm_creator import batch_options
from fleetctl.providers.slurm.slurm_login import SlurmLogin, check_slurm
from fleetctl.providers.slurm.slurm_provider import SlurmProvider
from fleetctl.specs.blocks.machines import SlurmSettings
from fleetctl.specs.values.hints import HintedText
from tests.contracts.provider_worlds import eventually, python, script
from tests.contracts.slurm_worlds import SlurmWorld
from tests.machines.memory_suite import end_for_memory
from tests.machines.slurm_cluster import SlurmCluster
from tests.machines.small_disk import fill_disk, mount_small_disk
from tests.machines.ssh_server import SshServer

# Its nodes take tens of seconds from state to state, and a busy machine tells them down.
pytestmark = [
    pytest.mark.needs("slurmctld", "slurmd", "squeue", "munged"),
    pytest.mark.only_all(reason="a real Slurm of three nodes"),
]
WAITS = "import time\nprint('begun', flush=True)\ntime.sleep(600)"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    place = tmp_path_factory.mktemp("slurm") / "cluster"
    with SlurmCluster(place) as one, pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "SLURM_CONF", str(one.config))
        yield one


def play(
    directory: Path,
    cluster: SlurmCluster,
    tale: Callable[[SlurmWorld], Awaitable[None]],
    **settings: object,
) -> None:
    async def whole() -> None:
        world = SlurmWorld(directory, cluster, **settings)
        try:
            await tale(world)
        finally:
            await world.close()

    asyncio.run(whole())


def job_of(handle: str) -> str:
    return handle.partition("/")[0]


def test_fields_of_a_template_are_options_of_sbatch() -> None:
    settings = SlurmSettings.model_validate(
        {"sharedDir": "/s", "partition": "gpu", "account": "lab", "options": ["--nice=10"]}
    )
    asked = {"cpu": 1.5, "memory": "2Gi", "gpu": "A100:2"}
    template = script("true", resources=asked, timeoutSeconds=600)
    assert batch_options(template, settings, reusable=False) == [
        *("--partition=gpu", "--account=lab", "--cpus-per-task=2", "--mem=2048M"),
        *("--gres=gpu:a100:2", "--time=16", "--signal=B:TERM@40", "--nice=10"),
    ]


def test_a_job_that_waits_says_why_in_words(tmp_path: Path, cluster: SlurmCluster) -> None:
    async def tale(world: SlurmWorld) -> None:
        cluster.run("scontrol", "update", "PartitionName=debug", "State=DOWN")
        try:
            with pytest.raises(Unavailable) as caught:
                await world.provider.start(world.order())
        finally:
            cluster.run("scontrol", "update", "PartitionName=debug", "State=UP")
        assert caught.value.reason == "Queued"
        assert "is pending: its partition is down (PartitionDown)" in str(caught.value)
        assert (await world.run(python("pass"))).ok  # the same job, once it may run

    play(tmp_path, cluster, tale)


@pytest.mark.parametrize("how", ["at once", "together"])
def test_a_task_over_its_memory_ends_for_it_where_slurm_does_not_look(
    tmp_path: Path, cluster: SlurmCluster, how: str
) -> None:
    play(tmp_path, cluster, lambda world: end_for_memory(world, how))


def test_a_cancelled_job_is_lost_by_that_name(tmp_path: Path, cluster: SlurmCluster) -> None:
    async def tale(world: SlurmWorld) -> None:
        ref = await world.start(python(WAITS))
        await world.log_holds(ref, b"begun")
        box = ref.handle.partition("/")[2].partition("@")[0]
        pid = int((world.root / "boxes" / box / "state" / "supervisor").read_text())
        os.kill(pid, 9)
        cluster.run("scancel", job_of(ref.handle))
        seen = await world.lost(ref)
        assert f"job {job_of(ref.handle)} was cancelled" in seen.message  # type: ignore[union-attr]

    play(tmp_path, cluster, tale)


def test_a_job_whose_end_was_asked_for_by_slurm_ends_its_task_in_order(
    tmp_path: Path, cluster: SlurmCluster
) -> None:
    async def tale(world: SlurmWorld) -> None:
        text = "trap 'echo saved; exit 0' TERM; echo begun; sleep 600 & wait"
        ref = await world.start(script(text))
        await world.log_holds(ref, b"begun")
        cluster.run("scancel", "--batch", "--signal=TERM", job_of(ref.handle))
        seen = await world.lost(ref)
        assert seen.reason == "SandboxEnded"  # type: ignore[union-attr]
        assert await world.log(ref) == b"begun\nsaved\n"

    play(tmp_path, cluster, tale)


def test_work_goes_on_while_the_scheduler_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a cluster of its own: for a while after its restart it cancels what it starts."""

    async def tale(world: SlurmWorld) -> None:
        go = tmp_path / "go"
        text = f"echo begun; while [ ! -e {go} ]; do sleep 0.1; done; echo done"
        ref = await world.start(script(text))
        await world.log_holds(ref, b"begun")
        cluster.kill("ctld")
        go.touch()
        await world.log_holds(ref, b"done")
        seen = await world.see(ref)
        assert seen is None or isinstance(seen, Alive), seen
        cluster.start("slurmctld")
        assert (await world.ended(ref)).ok

    with SlurmCluster(tmp_path / "cluster") as cluster:
        monkeypatch.setitem(os.environ, "SLURM_CONF", str(cluster.config))
        play(tmp_path, cluster, tale)


class ForgetfulCluster(SlurmCluster):
    """A cluster whose scheduler is killed, and restarts with the jobs as it wrote them last."""

    async def remember(self, job: str) -> None:
        begun_ns = time.time_ns()
        self.run("scontrol", "update", f"JobId={job}", "Comment=writes")

        async def written() -> bool:
            return (self.directory / "state" / "job_state").stat().st_mtime_ns > begun_ns

        await eventually(written, "the scheduler has written its jobs down")
        unfinished = shutil.ignore_patterns("*.new", "*.old")
        shutil.copytree(self.directory / "state", self.directory / "saved", ignore=unfinished)

    def forget(self, job: str) -> None:
        self.kill("ctld")
        shutil.rmtree(self.directory / "state")
        shutil.copytree(self.directory / "saved", self.directory / "state")
        self.start("slurmctld")
        assert f"{job} RUNNING" in self.run("squeue", "--noheader", "-o", "%i %T")

    async def is_empty(self) -> bool:
        return not self.run("squeue", "--noheader")


@pytest.fixture
def forgetful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForgetfulCluster]:
    monkeypatch.setattr("fleetctl.providers.slurm.slurm_sandboxes.WATCH_S", 0.5)
    with ForgetfulCluster(tmp_path / "cluster") as one:
        monkeypatch.setitem(os.environ, "SLURM_CONF", str(one.config))
        yield one


@pytest.mark.parametrize("restarted", [False, True])
def test_an_ended_job_that_a_killed_scheduler_takes_up_again_is_cancelled(
    tmp_path: Path, forgetful: ForgetfulCluster, restarted: bool
) -> None:
    """restarted: whether another controller is there by then."""

    async def tale(world: SlurmWorld) -> None:
        ref = await world.start(python(WAITS))
        await world.log_holds(ref, b"begun")
        await forgetful.remember(job_of(ref.handle))
        await world.provider.stop(ref, grace_s=0)
        await world.until(ref, lambda seen: not isinstance(seen, Alive), "stopped")
        if restarted:
            await world.provider.close()
            world.provider = world.again()
        forgetful.forget(job_of(ref.handle))
        assert list(await world.provider.owned()) == []
        await eventually(forgetful.is_empty, "the job is cancelled")

    play(tmp_path, forgetful, tale)


def test_a_job_that_left_before_its_task_began_is_lost_whatever_the_scheduler_remembers(
    tmp_path: Path, forgetful: ForgetfulCluster
) -> None:
    async def tale(world: SlurmWorld) -> None:
        order = world.order(python("pass"))
        handle = await world.provider.start(order)
        await forgetful.remember(job_of(handle))
        forgetful.run("scancel", "--batch", "--signal=TERM", job_of(handle))
        await eventually(forgetful.is_empty, "the job has left")
        forgetful.forget(job_of(handle))
        ref = await world.begin(order)
        await world.lost(ref)
        await eventually(forgetful.is_empty, "the job is cancelled")

    play(tmp_path, forgetful, tale)


def test_a_controller_that_dies_amid_an_end_leaves_no_box(
    tmp_path: Path, cluster: SlurmCluster
) -> None:
    async def tale(world: SlurmWorld) -> None:
        ref = await world.start(python(WAITS))
        await world.log_holds(ref, b"begun")
        box = ref.handle.partition("/")[2]
        assert isinstance(world.provider, SlurmProvider)
        await world.provider._login.line.call("drop", {"box": box, "kill": True})
        await world.provider.close()
        world.provider = world.again()
        await world.provider.owned()

        async def gone() -> bool:
            return not (world.root / "boxes" / box.partition("@")[0]).exists()

        await eventually(gone, "the box is gone")

    play(tmp_path, cluster, tale)


def test_many_tasks_share_an_allocation_and_few_commands(
    tmp_path: Path, cluster: SlurmCluster
) -> None:
    async def tale(world: SlurmWorld) -> None:
        count = 20
        first = await world.start(python("SUBMIT(n=0)"), reusable=True)
        assert (await world.ended(first)).sandbox_open
        assert isinstance(world.provider, SlurmProvider)
        queue = world.provider._login.queue
        before = queue.commands
        for number in range(1, count):
            changes = {"run": f"run-{number}", "sandbox": "run-0", "reusable": number < count - 1}
            seen = await world.ended(await world.start(python("SUBMIT(n=1)"), **changes))
            assert seen.ok, seen
        assert queue.commands - before < count

    play(tmp_path, cluster, tale)


def test_a_command_beside_a_task_joins_its_allocation(
    tmp_path: Path, cluster: SlurmCluster
) -> None:
    async def tale(world: SlurmWorld) -> None:
        text = "echo 7 >note; echo begun; sleep 600"
        ref = await world.start(script(text), run=f"run-{token_hex(4)}")
        await world.log_holds(ref, b"begun")
        entering = SlurmEntering(
            world.directory / "home", Account("slurm", "slurm", settings=world.settings)
        )
        out: list[bytes] = []
        streams = ExecStreams(None, out.append, lambda _: None)
        words = ("sh", "-c", "cat note; echo $SLURM_JOB_ID; exit 5")
        target = ExecTarget(ref.run, ref.sandbox, ref.handle)
        assert await entering.execute(target, words, streams) == 5
        assert b"".join(out) == f"7\n{job_of(ref.handle)}\n".encode()
        await entering.close()

    play(tmp_path, cluster, tale)


def test_doctor_tells_what_a_cluster_has(tmp_path: Path, cluster: SlurmCluster) -> None:
    account = Account("hpc", "slurm", settings={"sharedDir": str(tmp_path / "shared")})
    [seen] = asyncio.run(check_slurm(tmp_path / "home", account))
    assert seen.ok, seen
    # A node may still be completing a job of before.
    assert sum(int(it) for it in re.findall(r"debug\*: (\d+) ", seen.says)) == 3
    assert "2 cores, gpu:a100:2" in seen.says


def test_a_login_over_ssh_submits_follows_and_joins(tmp_path: Path, cluster: SlurmCluster) -> None:
    async def tale(world: SlurmWorld) -> None:
        # A command finds its run's processes by its name, and other tests have runs at this moment.
        ref = await world.start(
            script("echo 7 >note; echo begun; sleep 600"), run=f"run-{token_hex(4)}"
        )
        await world.log_holds(ref, b"begun")
        account = Account("slurm", "slurm", settings=world.settings)
        entering = SlurmEntering(world.directory / "home", account)
        out: list[bytes] = []
        streams = ExecStreams(None, out.append, lambda _: None)
        target = ExecTarget(ref.run, ref.sandbox, ref.handle)
        words = ("sh", "-c", "cat note; echo $SLURM_JOB_ID")
        assert await entering.execute(target, words, streams) == 0
        assert b"".join(out) == f"7\n{job_of(ref.handle)}\n".encode()
        await entering.close()
        assert login.cut() > 0  # the line to the login breaks, and the job goes on

        async def asked() -> bool:
            try:
                await world.provider.stop(ref, grace_s=0)
            except Unavailable:  # the first caller sees that the line broke
                return False
            return True

        await eventually(asked, "the end of the run was asked for")
        await world.until(ref, lambda seen: not isinstance(seen, Alive), "stopped")

    with SshServer(tmp_path / "login", variables=cluster.env) as login:
        settings = {"login": login.host, "config": str(login.config)}
        play(tmp_path, cluster, tale, **settings)


def test_a_held_job_says_how_it_is_let_go(tmp_path: Path, cluster: SlurmCluster) -> None:
    async def tale(world: SlurmWorld) -> None:
        with pytest.raises(Unavailable) as caught:
            await world.provider.start(world.order())
        found = re.search(r"scontrol release (\d+)", str(caught.value))
        assert found is not None, caught.value
        cluster.run("scontrol", "release", found[1])
        assert (await world.run(python("pass"))).ok

    play(tmp_path, cluster, tale, options=["--hold"])


def test_a_suspended_job_is_alive_and_says_so(
    tmp_path: Path, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.providers.slurm.slurm_login.RECENT_S", 0.0)

    async def tale(world: SlurmWorld) -> None:
        ref = await world.start(python(WAITS))
        await world.log_holds(ref, b"begun")
        job = job_of(ref.handle)
        cluster.run("scontrol", "suspend", job)
        said = HintedText(f"job {job} is suspended", f"scontrol resume {job}")
        await world.until(ref, lambda it: isinstance(it, Alive) and it.held == said, "said")
        cluster.run("scontrol", "resume", job)
        await world.until(ref, lambda it: isinstance(it, Alive) and not it.held, "going on")

    play(tmp_path, cluster, tale)


@pytest.mark.parametrize("accounting", [True, False])
def test_a_job_that_slurm_has_forgotten_is_decided_by_its_journal_and_its_account(
    tmp_path: Path, cluster: SlurmCluster, accounting: bool
) -> None:
    """The programs of the login are Slurm's own, less what they know of our jobs."""

    async def tale(world: SlurmWorld) -> None:
        ended = await world.start(python("SUBMIT(n=1)"), run="run-0")
        killed = await world.start(python(WAITS), run="run-1")
        await world.log_holds(killed, b"begun")
        box = killed.handle.partition("/")[2].partition("@")[0]
        done = world.root / "boxes" / ended.handle.partition("/")[2].partition("@")[0] / "state"
        await world.ended(ended)
        await world.provider.close()
        assert not done.exists()
        os.kill(int((world.root / "boxes" / box / "state" / "supervisor").read_text()), 9)
        cluster.run("scancel", job_of(killed.handle))
        forget.touch()
        (tmp_path / "name").write_text(f"fleetctl-{killed.handle.rpartition('@')[2]}")
        world.provider = world.again()
        assert (await world.ended(ended)).ok
        seen = await world.lost(killed)
        words = "preempted" if accounting else "left the scheduler's memory"
        said = "gave the node" if accounting else words
        assert said in seen.message  # type: ignore[union-attr]

    forget = tmp_path / "forget"
    record = f'echo "$(cat {tmp_path}/name)|PREEMPTED"' if accounting else "exit 1"
    programs = {
        "squeue": f'#!/bin/sh\n[ -e {forget} ] || exec /usr/bin/squeue "$@"\n',
        "sacct": f"#!/bin/sh\n{record}\n",
    }
    with SshServer(tmp_path / "login", variables=cluster.env, programs=programs) as login:
        settings = {"login": login.host, "config": str(login.config)}
        play(tmp_path, cluster, tale, **settings)


# A shared directory that shows what others wrote late, as NFS does: each side sees an entry of the
# other one some time after it looked for it first.
LATE_S = 1.0
LATE = """import builtins,os,time
_side="SLURM_JOB_ID" in os.environ
_other=("/inbox/","/kill") if _side else ("/state","/ready","/left")
def _hidden(path):
 if isinstance(path,int):return False
 whole=os.path.abspath(os.fspath(path))
 if "/boxes/" not in whole or not any(it in whole for it in _other):return False
 try:_stat(path)
 except OSError:return False
 seen="SEEN/%d%s"%(_side,whole.replace("/","+"))
 try:_close(_open(seen,os.O_CREAT|os.O_EXCL))
 except FileExistsError:pass
 return time.time()-_stat(seen).st_mtime<LATE_S
def _late(work):
 def call(path,*rest,**more):
  if _hidden(path):raise FileNotFoundError(2,"it is not shown yet",path)
  return work(path,*rest,**more)
 return call
_stat,_listdir,_open,_close=os.stat,os.listdir,os.open,os.close
os.stat,os.open,builtins.open=map(_late,(os.stat,os.open,builtins.open))
os.listdir=lambda path=".":[it for it in _listdir(path) if not _hidden(os.path.join(path,it))]
"""
LATE_PYTHON = """#!/bin/sh
i=$1 s=$2 c=$3 code=$4
shift 4
exec {python} "$i" "$s" "$c" "$(cat {shim})
$code" "$@"
"""


def test_a_shared_directory_that_shows_files_late_loses_and_repeats_nothing(
    tmp_path: Path, cluster: SlurmCluster
) -> None:
    count = 4
    ledger = tmp_path / "ledger"
    text = f"echo $FLEETCTL_RUN >>{ledger}; sleep 0.2; echo done"

    async def tale(world: SlurmWorld) -> None:
        orders = [world.order(script(text), run=f"run-{number}") for number in range(count)]
        for order in orders[:2]:
            await world.begin(order)
        await world.provider.close()  # its next controller finds them by what is shown
        world.provider = world.again()
        refs = [await world.begin(order) for order in orders]
        for ref in refs:
            seen = await world.ended(ref)
            assert seen.ok, seen
            assert await world.log(ref) == b"done\n"
        assert sorted(ledger.read_text().split()) == [order.run for order in orders]
        assert list(await world.provider.owned()) == []

    shim = tmp_path / "shim"
    (tmp_path / "seen").mkdir()
    shim.write_text(LATE.replace("LATE_S", str(LATE_S)).replace("SEEN", str(tmp_path / "seen")))
    python = Path(sys.executable).resolve()  # the program itself, which changes no PATH of the job
    programs = {"python3": LATE_PYTHON.format(python=python, shim=shim)}
    with SshServer(tmp_path / "login", variables=cluster.env, programs=programs) as login:
        settings = {"login": login.host, "config": str(login.config)}
        play(tmp_path, cluster, tale, **settings)
    assert {it.name[0] for it in (tmp_path / "seen").iterdir()} == {"0", "1"}  # on both sides


def test_a_login_that_is_closed_opens_its_line_no_more(
    tmp_path: Path, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at the queue that is due goes on when its caller has gone."""
    monkeypatch.setattr(slurm_login, "LOOK_S", 10.0)

    async def tale(world: SlurmWorld) -> None:
        login = SlurmLogin(tmp_path, lambda: Account("slurm", "slurm", settings=world.settings))
        await login.queue.jobs()
        caller = asyncio.ensure_future(login.queue.jobs())
        await asyncio.sleep(0)
        look = login.queue._looking
        assert look is not None and not look.done()
        caller.cancel()
        await login.close()
        await asyncio.wait({look})
        assert login.line.facts == {}

    play(tmp_path, cluster, tale)


def test_a_full_shared_directory_is_named_and_costs_no_run_and_no_result(
    tmp_path: Path, cluster: SlurmCluster
) -> None:
    go, over = tmp_path / "go", tmp_path / "over"
    text = f"""
import os, time
print("begun", flush=True)
while not os.path.exists({str(go)!r}):
    time.sleep(0.05)
open({str(over)!r}, "w").close()
SUBMIT(x="y" * 200_000)
"""

    async def tale(world: SlurmWorld) -> None:
        ref = await world.start(python(text), run="early")
        await world.log_holds(ref, b"begun")
        fill_disk(world.root / "filler")
        late = world.order(script("echo late"), run="late")
        with pytest.raises(Unavailable) as caught:
            await world.provider.start(late)
        assert f"the disk that holds `{world.root}` is full" in str(caught.value)

        go.touch()

        async def is_over() -> bool:
            return over.exists()

        await eventually(is_over, "the work came to its end")
        assert isinstance(await world.see(ref), Alive)  # its result has no room yet
        (world.root / "filler").unlink()
        seen = await world.ended(ref)
        assert seen.ok, seen
        assert seen.result == f'{{"x":"{"y" * 200_000}"}}'
        assert await world.log(ref) == b"begun\n"
        assert (await world.ended(await world.begin(late))).ok

    with mount_small_disk(tmp_path / "shared"):
        play(tmp_path, cluster, tale)
