"""Directories of checkpoints as frameworks leave them, written by the standard library."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

MARKER = "_COMPLETE.json"


def write(top: Path, files: dict[str, bytes | str]) -> None:
    """Files by path below `top`; a path that ends in `/` is an empty directory."""
    for name, content in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)


def own(top: Path, step: int, *, marked: bool = True, said: str = "weights") -> Path:
    """Of the format `fleetctl`; said: what its marker takes the file for."""
    directory = top / f"step-{step:08d}"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "model.bin").write_bytes(b"weights")
    if marked:
        digest = hashlib.sha256(said.encode()).hexdigest()
        marker = {"format": 1, "step": step, "files": {"model.bin": [len(said), digest]}}
        (directory / MARKER).write_text(json.dumps(marker))
    return directory


def torch_file(step: int, *, torch_memo: bytes = b"q\x01") -> bytes:
    """The beginning of what `torch.save` writes for Lightning: a zip with a pickle first."""
    number = b"M" + step.to_bytes(2, "little")
    pickle = b"\x80\x02}q\x00X\x0b\x00\x00\x00global_step" + torch_memo + number + b"s."
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), pickle)
        archive.writestr(zipfile.ZipInfo("archive/data/0"), b"\0" * 2000)
    return file.getvalue()
