"""A real Slurm of three nodes on this machine, each with two cores and two pretended GPUs: Debian's
slurmctld, slurmd and munged, with files of their own. It needs root, as nodes start jobs of users.

As a program it keeps one for whoever wants to try the pages by hand, and prints its SLURM_CONF:
`python -m tests.machines.slurm_cluster DIRECTORY`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

NODES = ("n1", "n2", "n3")
READY_S = 120.0
LOOK_S = 0.2


class SlurmCluster:
    def __init__(self, directory: Path, *, settings: str = "") -> None:
        """settings: further lines of slurm.conf."""
        self.directory = directory
        self.config = directory / "slurm.conf"
        # The path of a socket is short.
        self.secrets = Path(tempfile.mkdtemp(prefix="fleetctl-munge-"))
        self._munged: subprocess.Popen[bytes] | None = None
        for name in ("state", "log", *(f"spool.{node}" for node in NODES)):
            (directory / name).mkdir(parents=True)
        ports = _free_ports(1 + len(NODES))
        self._write(ports, settings)
        self._start_munge()
        try:
            self.start("slurmctld", "-c")
            for node in NODES:
                self.start("slurmd", "-c", "-N", node)
            self.await_nodes()
        except BaseException:
            self.stop()
            raise

    @property
    def env(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.config)}

    def start(self, program: str, *words: str) -> None:
        subprocess.run([program, *words], env={**os.environ, **self.env}, check=True)

    def run(self, *words: str) -> str:
        done = subprocess.run(
            words, env={**os.environ, **self.env}, stdout=subprocess.PIPE, check=True
        )
        return done.stdout.decode()

    def kill(self, name: str) -> None:
        """Kills a daemon by the name of its pid file: `ctld`, or `d.n1`."""
        path = self.directory / f"{name}.pid"
        try:
            os.kill(int(path.read_text()), signal.SIGKILL)
        except (OSError, ValueError):
            return

    def stop(self) -> None:
        for name in (*(f"d.{node}" for node in NODES), "ctld"):
            self.kill(name)
        if self._munged is not None:
            self._munged.terminate()
            self._munged.wait()
        shutil.rmtree(self.secrets, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _write(self, ports: list[int], settings: str) -> None:
        place, host = self.directory, socket.gethostname()
        gpus = [place / f"gpu{number}" for number in range(2)]
        for gpu in gpus:
            gpu.touch()
        lines = [
            "ClusterName=test",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={ports[0]}",
            "SlurmUser=root",
            "SlurmdUser=root",
            "SlurmdParameters=config_overrides",
            "AuthType=auth/munge",
            "CryptoType=crypto/munge",
            f"AuthInfo=socket={self.secrets / 'socket'}",
            f"StateSaveLocation={place}/state",
            f"SlurmdSpoolDir={place}/spool.%n",
            f"SlurmctldPidFile={place}/ctld.pid",
            f"SlurmdPidFile={place}/d.%n.pid",
            f"SlurmctldLogFile={place}/log/ctld",
            f"SlurmdLogFile={place}/log/d.%n",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "ReturnToService=2",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "SchedulerParameters=sched_interval=1",
            "JobCompType=jobcomp/none",
            "AccountingStorageType=accounting_storage/none",
            "JobAcctGatherType=jobacct_gather/none",
            "MinJobAge=300",
            "GresTypes=gpu",
            *(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
                " CPUs=2 RealMemory=8000 Gres=gpu:a100:2 State=UNKNOWN"
                for node, port in zip(NODES, ports[1:], strict=True)
            ),
            "PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
            " OverSubscribe=FORCE:4",
            settings,
        ]
        self.config.write_text("\n".join(lines) + "\n")
        names = ",".join(NODES)
        text = f"NodeName={names} Name=gpu Type=a100 Count=2 File={place}/gpu[0-1]\n"
        (place / "gres.conf").write_text(text)

    def _start_munge(self) -> None:
        """Begins a munged of our own: several clusters may be here at once."""
        key = self.secrets / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        words = ["munged", "--foreground", "--force", "--num-threads=2", f"--key-file={key}"]
        for name in ("socket", "pid-file", "log-file", "seed-file"):
            words.append(f"--{name}={self.secrets / name}")
        quiet = subprocess.DEVNULL
        self._munged = subprocess.Popen(words, stdout=quiet, stderr=quiet)
        _await(self._munge_answers, "munged answers")

    def _munge_answers(self) -> bool:
        at = f"--socket={self.secrets / 'socket'}"
        done = subprocess.run(["munge", "-n", at], capture_output=True)
        return done.returncode == 0

    def await_nodes(self) -> None:
        """Waits until all nodes are registered and idle."""

        def idle() -> bool:
            words = ("sinfo", "--noheader", "-N", "-t", "idle", "-o", "%N")
            done = subprocess.run(
                words, env={**os.environ, **self.env}, stdout=subprocess.PIPE, stderr=-3
            )
            return len(done.stdout.split()) == len(NODES)

        _await(idle, "all nodes are idle", self._describe)

    def _describe(self) -> str:
        nodes = self.run("sinfo", "--noheader", "-N", "-o", "%N %T %E")
        return f"{nodes}{self.run('squeue', '--noheader', '-o', '%i %T %r %N %j')}"


def _await(holds: Callable[[], bool], what: str, describe: Callable[[], str] = lambda: "") -> None:
    give_up_at_s = time.monotonic() + READY_S
    while not holds():
        if time.monotonic() > give_up_at_s:
            raise AssertionError(f"it never happened that {what}: {describe()}")
        time.sleep(LOOK_S)


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return found


if __name__ == "__main__":
    with SlurmCluster(Path(sys.argv[1])) as kept:
        print(f"export SLURM_CONF={kept.config}", flush=True)
        signal.sigwait([signal.SIGINT, signal.SIGTERM])
