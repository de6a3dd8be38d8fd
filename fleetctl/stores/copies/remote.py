"""A directory of backups that fsspec reaches: s3, gs, abfs, sftp, memory and what else it knows.

The only importer of fsspec, which is an extra. What its filesystems raise is translated here; they
are other people's, and each has errors of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from fleetctl.common.errors import FleetctlError, NotFound, Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.stores.copies.names import PARTIAL

CHUNK_BYTES = 1 << 20
EXTRA = "backup"
# What beside fsspec reaches these; each is a package of its own.
PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs",
    "abfss": "adlfs", "sftp": "paramiko", "ssh": "paramiko", "http": "aiohttp",
    "https": "aiohttp", "hf": "huggingface_hub", "smb": "smbprotocol",
}  # fmt: skip


class Remote:
    """url: with its protocol; of a directory, with or without a `/` at its end. Raises Refused for
    one that nothing here reaches.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._fs, self._path = _opened(self.url)

    def of(self, name: str) -> str:
        return f"{self.url}/{name}"

    def names(self) -> list[str]:
        """Of all that lies there; none where there is no such directory yet."""
        with self._translated("list"):
            try:
                found = self._fs.ls(self._path, detail=False)
            except FileNotFoundError:
                return []
            return [str(it).rstrip("/").rpartition("/")[2] for it in found]

    def put(self, file: Path, name: str) -> None:
        """It is there as a whole when this returns; until then it has another name."""
        partial, whole = f"{self._path}/{name}{PARTIAL}", f"{self._path}/{name}"
        with self._translated("write"):
            self._fs.makedirs(self._path, exist_ok=True)
            self._fs.put_file(str(file), partial)
        self._must_be(partial, file)
        with self._translated("write"):
            self._fs.mv(partial, whole)
        # Of a store of objects a move is a copy; so what counts is what can be read in the end.
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
                found = _digest(there)
        with file.open("rb") as here:
            same = found == _digest(here)
        if not same:
            raise Unavailable(
                f"what was written to `{self.url}` is not what is read from there",
                hint="nothing was let go of; try again, and look at that service",
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
                f"`{self.url}` does not let us {what}: {_words(error)}",
                hint="give the credentials that its library looks for, by `secret` in the settings",
            ) from error
        except Exception as error:
            raise Unavailable(
                f"`{self.url}` cannot be reached to {what}: {_words(error)}"
            ) from error


def _opened(url: str) -> tuple[Any, str]:
    protocol = url.partition("://")[0]
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise Refused(
            f"`{url}` needs the library fsspec, which is not installed", hint=_install(protocol)
        ) from None
    try:
        fs, path = url_to_fs(url)
    except ImportError as error:
        raise Refused(f"`{url}`: {_words(error)}", hint=_install(protocol)) from None
    except ValueError as error:
        if "rotocol" not in str(error):
            raise Refused(
                f"`{url}`: {_words(error)}", hint="a URL such as `s3://bucket/backups`"
            ) from None
        raise Refused(
            f"`{url}`: fsspec knows no protocol `{protocol}`",
            hint="such as `s3://bucket/backups`, `gs://bucket/backups`, or a directory",
        ) from None
    return fs, str(path).rstrip("/")


def _install(protocol: str) -> str:
    package = PACKAGES.get(protocol)
    return f"{install_hint(EXTRA)} {package}" if package else install_hint(EXTRA)


def _words(error: BaseException) -> str:
    """What it says, in a line; some say nothing."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def _digest(file: Any) -> tuple[int, str]:
    seen, size = sha256(), 0
    while part := file.read(CHUNK_BYTES):
        seen.update(part)
        size += len(part)
    return size, seen.hexdigest()
