"""Accesses a directory of backups through fsspec: s3, gs, abfs, sftp, memory and its other
protocols.

The only importer of fsspec, which is an extra. Errors of its filesystems are translated here; those
are by other authors, and each has errors of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from fleetctl.common.errors import FleetctlError, NotFound, Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.stores.copies.backup_names import PARTIAL

CHUNK_BYTES = 1 << 20
EXTRA = "backup"
# Packages needed beside fsspec for these protocols.
PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs",
    "abfss": "adlfs", "sftp": "paramiko", "ssh": "paramiko", "http": "aiohttp",
    "https": "aiohttp", "hf": "huggingface_hub", "smb": "smbprotocol",
}  # fmt: skip


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
        """Raises NotFound where there is no such file."""
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
