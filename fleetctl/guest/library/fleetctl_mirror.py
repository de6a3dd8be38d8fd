"""Copies one checkpoint to a URL that fsspec knows, or the newest one there back. A program of
its own, run beside the training by guest/checkpoints/mirror.py; prints one line of JSON.

    python -c THIS copy URL DIRECTORY '{"name": ..., "step": ..., "last": [...], "tracker": ...}'
    python -c THIS restore URL DIRECTORY '{"step": null}'

No file in DIRECTORY is overwritten, unless an earlier `restore` was interrupted there. A listing
beside the copy, `NAME.mirrored.json`, is written when the copy is complete: a copy without one was
never finished. The listing has the order of the files, so that markers are restored last, too.
"""

import json
import os
import sys
from typing import Any, Dict, List

LISTING = ".mirrored.json"
RESTORING = ".restoring-"  # prefix of a file that exists while a copy is restored


def copy_checkpoint(
    fs: Any,
    root: str,
    directory: str,
    asked: Dict[str, Any],
) -> Dict[str, Any]:
    name = asked["name"]
    listing = f"{root}/{asked['name']}{LISTING}"
    whole = {
        "format": 1,
        "step": asked["step"],
        "name": name,
        "files": files_of(directory, name, asked["last"]),
        "tracker": asked["tracker"],
    }
    if fs.exists(listing):
        if json.loads(fs.cat_file(listing))["files"] == whole["files"]:
            return {"same": True}
        fs.rm_file(listing)  # the copy is rewritten, and incomplete until then
    for file in whole["files"]:
        target = f"{root}/{file}"
        fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        fs.put_file(os.path.join(directory, file), target)
    fs.pipe_file(listing, json.dumps(whole).encode())
    return {"bytes": sum(whole["files"].values())}


def files_of(
    directory: str,
    name: str,
    last: List[str],
) -> Dict[str, int]:
    """Returns bytes by path below the directory, with the names in `last` at the end."""
    top = os.path.join(directory, name)
    if not os.path.isdir(top):
        return {name: os.path.getsize(top)}
    found = []
    for place, _, names in os.walk(top):
        for one in names:
            path = os.path.join(place, one)
            found.append((one in last, os.path.relpath(path, directory), os.path.getsize(path)))
    return {path: size for _, path, size in sorted(found)}


def restore_checkpoint(
    fs: Any,
    root: str,
    directory: str,
    asked: Dict[str, Any],
) -> Dict[str, Any]:
    try:
        names = [str(one) for one in fs.ls(root, detail=False)]
    except FileNotFoundError:
        return {}
    whole = [json.loads(fs.cat_file(one)) for one in names if one.endswith(LISTING)]
    if asked["step"] is not None:
        whole = [one for one in whole if one["step"] == asked["step"]]
    if not whole:
        return {}
    free = [one for one in whole if not _is_in_the_way(directory, one)]
    if not free:
        shown = ", ".join(f"`{one['name']}`" for one in whole[:3])
        raise ValueError(f"{shown}: would be written over what is in the directory")
    newest = max(free, key=lambda one: one["step"])
    name = newest["name"]
    tracker = newest["tracker"]
    begun = os.path.join(directory, RESTORING + os.path.basename(name))
    with open(begun, "w", encoding="ascii"):
        pass
    _fetch_files(fs, root, directory, newest["files"])
    if tracker:
        _write_tracker(directory, os.path.basename(tracker[0]), tracker[1])
    os.unlink(begun)
    return {"step": newest["step"], "name": name}


def _is_in_the_way(directory: str, copy: Dict[str, Any]) -> bool:
    """Returns whether a copy would overwrite files other than those of an interrupted `restore`."""
    name = copy["name"]
    if os.path.exists(os.path.join(directory, RESTORING + os.path.basename(name))):
        return False
    return os.path.lexists(os.path.join(directory, name))


def _write_tracker(
    directory: str,
    name: str,
    text: str,
) -> None:
    """Makes the tracker name the restored checkpoint; keeps its former text beside it."""
    place = kept = os.path.join(directory, name)
    if os.path.islink(place):
        raise ValueError(f"`{name}` is a link, and would be written through")
    number = 1
    while os.path.lexists(place) and os.path.lexists(kept):
        kept = os.path.join(directory, f".stepped-back-{name}" + (f".{number}" * (number > 1)))
        number += 1
    if kept != place:
        with open(place, "rb") as before, open(kept, "xb") as file:
            file.write(before.read())
    with open(place, "w", encoding="ascii") as file:
        file.write(text)


def _fetch_files(
    fs: Any,
    root: str,
    directory: str,
    files: Dict[str, int],
) -> None:
    for file, size in files.items():
        target = os.path.normpath(os.path.join(directory, file))
        if not target.startswith(os.path.join(os.path.normpath(directory), "")):
            raise ValueError(f"`{file}` would be outside of the directory")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        fs.get_file(f"{root}/{file}", target)
        if os.path.getsize(target) != size:
            raise ValueError(f"`{file}` is not as long as it was")


def main(
    verb: str,
    url: str,
    directory: str,
    asked: str,
) -> None:
    try:
        import fsspec

        fs, root = fsspec.core.url_to_fs(url)
        act = {"copy": copy_checkpoint, "restore": restore_checkpoint}[verb]
        done = act(fs, root.rstrip("/"), directory, json.loads(asked))
    except ImportError as error:
        done = {"error": f"{error}: add the package to `image.pip`"}
    except Exception as error:  # each filesystem has errors of its own
        done = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
