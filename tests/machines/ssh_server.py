"""A real OpenSSH server on loopback, of the user who runs the tests, with keys, a home and a
configuration of its own: nothing of `~/.ssh` is read or written.

As a program it keeps one for whoever wants to try the pages by hand:
`python -m tests.machines.ssh_server DIRECTORY`.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

START_S = 60.0
LOOK_S = 0.02
# Programs of a machine without Python, by Debian's packages that are always there.
PLAIN = (
    "base64 basename cat chmod cksum cut date dd df dirname env expr false find git grep gzip"
    " head id ln ls mkdir mkfifo mktemp mv nproc od printf readlink rm rmdir sed seq setsid sh"
    " sha256sum sleep sort stat sync tail tar taskset touch tr true uname wc"
)


class SshServer:
    """programs: texts of programs that its sessions find first, by name, such as an `nvidia-smi`;
    python3: whether they find a `python3`; variables: of its sessions.
    """

    def __init__(
        self,
        directory: Path,
        *,
        programs: dict[str, str] | None = None,
        python3: bool = True,
        variables: dict[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.port = _free_port()
        self.home = directory / "home"
        self.config = directory / "config"
        self.known = directory / "known_hosts"
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "bin").mkdir(parents=True)
        self.home.mkdir(mode=0o700)
        for name in ("host_key", "client_key"):
            self._make_key(name)
        shutil.copy(directory / "client_key.pub", directory / "authorized_keys")
        for name, text in (programs or {}).items():
            program = directory / "bin" / name
            program.write_text(text)
            program.chmod(0o755)
        rest = os.environ["PATH"] if python3 else str(self._plain())
        self._path = f"{directory / 'bin'}:{rest}"
        self._write_config(variables or {})
        self.trust()
        self.start()

    @property
    def host(self) -> dict[str, object]:
        """It, as a `host` of a Provider object."""
        return {"host": "127.0.0.1", "port": self.port, "user": getpass.getuser()}

    def trust(self) -> None:
        """Writes its key where our side looks for known ones."""
        kind, key, *_ = (self.directory / "host_key.pub").read_text().split()
        self.known.write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")

    def start(self) -> None:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it gives up its rights
        server = shutil.which("sshd") or "/usr/sbin/sshd"
        log = (self.directory / "log").open("ab")
        words = [server, "-D", "-e", "-f", str(self.directory / "sshd_config")]
        self._process = subprocess.Popen(words, stderr=log, stdin=subprocess.DEVNULL)
        give_up_at_s = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=START_S).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > give_up_at_s:
                    raise AssertionError((self.directory / "log").read_text()) from None
                time.sleep(LOOK_S)

    def stop(self) -> None:
        """The server goes away with all of its sessions, as a machine does whose cable is pulled;
        what its sessions began works on.
        """
        assert self._process is not None
        sessions = [pid for pid in self.sessions() if pid != self._process.pid]
        self._process.kill()
        self._process.wait()
        for pid in sessions:
            _kill(pid)

    def cut(self) -> int:
        """Kills every session of it; how many there were."""
        assert self._process is not None
        sessions = [pid for pid in self.sessions() if pid != self._process.pid]
        for pid in sessions:
            _kill(pid)
        return len(sessions)

    def sessions(self) -> list[int]:
        """Returns the processes that serve its connections."""
        found = []
        for about in Path("/proc").glob("[0-9]*"):
            try:
                words = (about / "cmdline").read_bytes()
            except OSError:
                continue
            pid = int(about.name)
            assert self._process is not None
            if words.startswith(b"sshd: ") and _descends(pid, self._process.pid):
                found.append(pid)
        return found

    def below(self) -> list[int]:
        """Returns the server and all processes that descend from it."""
        assert self._process is not None
        pids = [int(it.name) for it in Path("/proc").glob("[0-9]*")]
        return [pid for pid in pids if _descends(pid, self._process.pid)]

    def change_key(self) -> None:
        """It becomes another machine, as far as a client can tell."""
        self.stop()
        for name in ("host_key", "host_key.pub"):
            (self.directory / name).unlink()
        self._make_key("host_key")
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _make_key(self, name: str) -> None:
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", name]
        subprocess.run(words, cwd=self.directory, check=True)

    def _plain(self) -> Path:
        """A directory with the programs of a machine that has no Python."""
        place = self.directory / "plain"
        place.mkdir()
        for name in PLAIN.split():
            (place / name).symlink_to(shutil.which(name) or name)
        return place

    def _write_config(self, variables: dict[str, str]) -> None:
        known = {"HOME": self.home, "PATH": self._path, **variables}
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.directory / 'host_key'}",
            f"AuthorizedKeysFile {self.directory / 'authorized_keys'}",
            f"PidFile {self.directory / 'pid'}",
            f"SetEnv {' '.join(f'{name}={value}' for name, value in known.items())}",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin prohibit-password",
            "MaxStartups 100:30:200",
        ]
        (self.directory / "sshd_config").write_text("\n".join(lines) + "\n")
        lines = [
            f"UserKnownHostsFile {self.known}",
            "GlobalKnownHostsFile /dev/null",
            f"IdentityFile {self.directory / 'client_key'}",
            "IdentitiesOnly yes",
        ]
        self.config.write_text("\n".join(lines) + "\n")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _descends(pid: int, server: int) -> bool:
    while pid > 1 and pid != server:
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        pid = int(text.rpartition(")")[2].split()[1])
    return pid == server


if __name__ == "__main__":
    with SshServer(Path(sys.argv[1])) as kept:
        print(f"ssh -F {kept.config} -p {kept.port} 127.0.0.1", flush=True)
        signal.sigwait([signal.SIGINT, signal.SIGTERM])
