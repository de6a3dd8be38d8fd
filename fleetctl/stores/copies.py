"""Writes a backup to a target that a user named, and fetches one from it: a file, a directory, or
one behind a URL that fsspec knows.

Called by the verbs `backup` and `restore`; the controller runs `backup` when its schedule requires
it. A file or directory of this machine, also as `file://`, needs no package; every other URL goes
through fsspec. fsspec is an extra, and the controller imports it nowhere else. Errors of its
filesystems are translated here: those are by other authors, and each has errors of its own.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from fleetctl.common.errors import FleetctlError, NotFound, Refused, StoreError, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.stores import backup
from fleetctl.stores.backup import BackupManifest
from fleetctl.stores.read.reader import Reader

FILE = "file://"
ROOM = ".backup-"  # begins the name of a directory for a copy on its way
PARTIAL_S = 86_400.0  # no copy is on its way for so long

SUFFIX = ".backup"
# An unfinished file has another name until it is complete.
PARTIAL = ".partial"
_NAME = re.compile(r"fleetctl-(?P<store>[0-9a-f]{12})-(?P<time>\d{8}T\d{6}Z)\.backup")

CHUNK_BYTES = 1 << 20
EXTRA = "backup"
# Packages needed beside fsspec for these protocols.
PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs",
    "abfss": "adlfs", "sftp": "paramiko", "ssh": "paramiko", "http": "aiohttp",
    "https": "aiohttp", "hf": "huggingface_hub", "smb": "smbprotocol",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WrittenBackup:
    """url: of the backup, an absolute path or a URL. dropped: names of removed older ones. remark:
    why other surplus backups are still there; empty where all were removed.
    """

    url: str
    bytes: int
    about: BackupManifest
    dropped: Sequence[str] = ()
    remark: str = ""


def is_url(where: str) -> bool:
    return "://" in where and not where.startswith(FILE)


def write_copy(
    home: Path,
    where: str,
    *,
    now_s: float,
    keep: int | None = None,
) -> WrittenBackup:
    """Backs up to a file, or to a directory under a name of ours; a URL that ends with our suffix
    is that of a file. keep: of a directory, how many of this store's own stay. Raises
    FleetctlError; then no new file counts as a backup.
    """
    if is_url(where):
        return _write_remote(home, where, now_s, keep)
    path = _local_path(where)
    if not (path.is_dir() or where.endswith("/")):
        if keep is not None:
            raise Refused(
                f"`{where}` is one file, and `keep` counts those of a directory",
                hint=f"make the directory: mkdir -p {where}",
            )
        about = backup.write_backup(home, path, now_s=now_s)
        return WrittenBackup(str(path.absolute()), path.stat().st_size, about)
    try:
        path.mkdir(
            mode=0o700,
            parents=True,
            exist_ok=True,
        )
        _remove_partials(path, backup.ROOM, time.time())
        file = path / name_for(_store_id(home), now_s)
        about = backup.write_backup(home, file, now_s=now_s)
        there = [it.name for it in path.iterdir()]
        dropped = select_surplus(there, about.store_id, keep or 1 << 30, fresh=file.name)
    except OSError as error:
        raise StoreError(
            f"the backup in `{path}` cannot be written: {error.strerror or error}",
            hint="name a directory that you can write, on a disk with room",
        ) from error
    went, remark = _let_go(dropped, lambda name: (path / name).unlink(missing_ok=True))
    return WrittenBackup(
        str(file.absolute()),
        file.stat().st_size,
        about,
        went,
        remark,
    )


def _write_remote(
    home: Path,
    where: str,
    now_s: float,
    keep: int | None,
) -> WrittenBackup:
    top, name = _split_url(where)
    if name and keep is not None:
        raise Refused(
            f"`{where}` is one file, and `keep` counts those of a directory", hint=f"write `{top}/`"
        )
    remote = RemoteDirectory(top)
    with _make_temp_dir(home) as folder:
        file = folder / "whole"
        about = backup.write_backup(home, file, now_s=now_s)
        name = name or name_for(about.store_id, now_s)
        there = remote.names()
        remote.put(file, name)
        size = file.stat().st_size
    # Only now: older ones are surplus because the new one exists.
    dropped = select_surplus({*there, name}, about.store_id, keep or 1 << 30, fresh=name)
    halves = list_partials(there, about.store_id, now_s - PARTIAL_S)
    went, remark = _let_go([*dropped, *halves], remote.remove)
    return WrittenBackup(
        remote.of(name),
        size,
        about,
        [it for it in went if it in dropped],
        remark,
    )


def _let_go(names: Sequence[str], remove: Callable[[str], None]) -> tuple[list[str], str]:
    """Returns the removed names, and why some remain. The new backup counts in any case: if it were
    repeated for that, their number would grow.
    """
    went: list[str] = []
    for name in names:
        try:
            remove(name)
        except (FleetctlError, OSError) as error:
            return went, f"older backups cannot be deleted: {error}"
        went.append(name)
    return went, ""


@contextmanager
def fetch_copy(home: Path, where: str) -> Iterator[Path]:
    """The backup at `where` as a file of this machine: of a directory the newest one in it. Raises
    NotFound, Refused and Unavailable.
    """
    if not is_url(where):
        path = _local_path(where)
        if path.is_dir():
            path = path / _choose_newest([it.name for it in path.iterdir()], where).name
        yield path
        return
    top, name = _split_url(where)
    remote = RemoteDirectory(top)
    name = name or _choose_newest(remote.names(), where).name
    with _make_temp_dir(home) as folder:
        remote.fetch(name, folder / name)
        yield folder / name


def _choose_newest(names: Sequence[str], where: str) -> BackupName:
    found = select_ours(names)
    if not found:
        raise NotFound(f"there is no backup in `{where}`", hint="name the file itself")
    stores = {it.store for it in found}
    if len(stores) > 1:
        raise Refused(
            f"`{where}` has backups of {len(stores)} stores",
            hint=f"name the file: {where.rstrip('/')}/{found[-1].name}",
        )
    return found[-1]


def _split_url(url: str) -> tuple[str, str]:
    """Returns (directory, name of the file in it, or empty)"""
    top, _, last = url.rpartition("/")
    if last.endswith(".backup"):
        return (top, last)
    return (url.rstrip("/"), "")


def _local_path(where: str) -> Path:
    return Path(where.removeprefix(FILE)).expanduser()


def _store_id(home: Path) -> str:
    with Reader(home) as reader:
        store_id = reader.store_id()
    if not store_id:
        raise NotFound(f"there is no store in `{home}` yet", hint="the first `apply` makes one")
    return store_id


@contextmanager
def _make_temp_dir(home: Path) -> Iterator[Path]:
    """Makes a directory for a copy that comes or goes; removed afterwards."""
    try:
        home.mkdir(
            mode=0o700,
            parents=True,
            exist_ok=True,
        )
        _remove_partials(home, ROOM, time.time())
        with tempfile.TemporaryDirectory(prefix=ROOM, dir=home) as folder:
            yield Path(folder)
    except OSError as error:
        raise StoreError(
            f"a copy of the store finds no room in `{home}`: {error.strerror or error}",
            hint="free some space there",
        ) from error


def _remove_partials(
    top: Path,
    prefix: str,
    now_s: float,
) -> None:
    """Removes the partial files of processes that were killed while they copied. Raises OSError."""
    for it in top.iterdir():
        if it.name.startswith(prefix) and it.stat().st_mtime < now_s - PARTIAL_S:
            shutil.rmtree(it, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class BackupName:
    """store: the beginning of the store's id. at: when it was copied, so that names sort by it."""

    name: str
    store: str
    at: str


def name_for(store_id: str, at_s: float) -> str:
    return f"fleetctl-{store_id[:12]}-{_format_stamp(at_s)}{SUFFIX}"


def select_ours(names: Iterable[str], store_id: str = "") -> list[BackupName]:
    """Returns the names in our form, of one store or of all; the oldest first."""
    found = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None and store_id.startswith(match["store"] if store_id else ""):
            found.append(BackupName(name, match["store"], match["time"]))
    return sorted(found, key=lambda it: (it.at, it.name))


def select_surplus(
    names: Iterable[str],
    store_id: str,
    keep: int,
    *,
    fresh: str,
) -> Sequence[str]:
    """Returns this store's own backups beyond the newest `keep`. All other files stay, and so does
    `fresh`, the one that was just written. A backup with a later time was written while a clock was
    wrong, and counts as older than the rest.
    """
    own = select_ours(names, store_id)
    at = next((it.at for it in own if it.name == fresh), "")
    older = [it for it in own if it.name != fresh]
    older.sort(key=lambda it: (it.at <= at, it.at, it.name))
    return [it.name for it in older[: max(0, len(own) - keep)]]


def list_partials(
    names: Iterable[str],
    store_id: str,
    before_s: float,
) -> Sequence[str]:
    """Returns unfinished files of this store that were begun before then."""
    cut = [it.removesuffix(PARTIAL) for it in names if it.endswith(PARTIAL)]
    stamp = _format_stamp(before_s)
    return [it.name + PARTIAL for it in select_ours(cut, store_id) if it.at < stamp]


def _format_stamp(at_s: float) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at_s))


class RemoteDirectory:
    """url: with its protocol; of a directory, with or without a `/` at its end. Raises Refused for
    an unsupported protocol.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._fs, self._path = _open_filesystem(self.url)

    def of(self, name: str) -> str:
        return f"{self.url}/{name}"

    def names(self) -> list[str]:
        """Returns the names of all files there; an empty list where the directory does not exist
        yet.
        """
        with self._translated("list"):
            try:
                found = self._fs.ls(self._path, detail=False)
            except FileNotFoundError:
                return []
            return [str(it).rstrip("/").rpartition("/")[2] for it in found]

    def put(self, file: Path, name: str) -> None:
        """Uploads a file. It is complete when this returns; until then it has another name."""
        partial = f"{self._path}/{name}{PARTIAL}"
        whole = f"{self._path}/{name}"
        with self._translated("write"):
            self._fs.makedirs(self._path, exist_ok=True)
            self._fs.put_file(str(file), partial)
        self._must_be(partial, file)
        with self._translated("write"):
            self._fs.mv(partial, whole)
        # In an object store a move is a copy, so the final file is read back.
        self._must_be(whole, file)

    def fetch(self, name: str, to: Path) -> None:
        """Downloads a file of the directory to the path `to`. Raises NotFound without it."""
        with self._translated("read"):
            self._fs.invalidate_cache()
            self._fs.get_file(f"{self._path}/{name}", str(to))

    def remove(self, name: str) -> None:
        with self._translated("write"):
            self._fs.rm_file(f"{self._path}/{name}")

    def _must_be(self, path: str, file: Path) -> None:
        with self._translated("read"):
            self._fs.invalidate_cache()
            with self._fs.open(path, "rb") as there:
                found = _digest_file(there)
        with file.open("rb") as here:
            same = found == _digest_file(here)
        if not same:
            raise Unavailable(
                f"the file read back from `{self.url}` is not the one written",
                hint="nothing was deleted; try again, and look at that service",
            )

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except FleetctlError:
            raise
        except FileNotFoundError as error:
            raise NotFound(
                f"there is no file `{error.args[-1] if error.args else self.url}`"
            ) from None
        except PermissionError as error:
            raise Refused(
                f"`{self.url}` does not let us {what}: {_describe_error(error)}",
                hint="give the credentials that its library looks for, by `secret` in the settings",
            ) from error
        except Exception as error:  # each filesystem has errors of its own
            raise Unavailable(
                f"`{self.url}` cannot be reached to {what}: {_describe_error(error)}"
            ) from error


def _open_filesystem(url: str) -> tuple[Any, str]:
    protocol = url.partition("://")[0]
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise Refused(
            f"`{url}` needs the library fsspec, which is not installed",
            hint=_suggest_install(protocol),
        ) from None
    try:
        fs, path = url_to_fs(url)
    except ImportError as error:
        raise Refused(
            f"`{url}`: {_describe_error(error)}", hint=_suggest_install(protocol)
        ) from None
    except ValueError as error:
        if "rotocol" not in str(error):
            raise Refused(
                f"`{url}`: {_describe_error(error)}", hint="a URL such as `s3://bucket/backups`"
            ) from None
        raise Refused(
            f"`{url}`: fsspec knows no protocol `{protocol}`",
            hint="such as `s3://bucket/backups`, `gs://bucket/backups`, or a directory",
        ) from None
    return fs, str(path).rstrip("/")


def _suggest_install(protocol: str) -> str:
    package = PACKAGES.get(protocol)
    if package:
        return f"{install_hint(EXTRA)} {package}"
    return install_hint(EXTRA)


def _describe_error(error: BaseException) -> str:
    """Returns the error's message in a line, or its type where the message is empty."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def _digest_file(file: Any) -> tuple[int, str]:
    seen = sha256()
    size = 0
    while part := file.read(CHUNK_BYTES):
        seen.update(part)
        size += len(part)
    return size, seen.hexdigest()
