"""Stands in for the program behind `sandbox.filesystem`: one JSON command as its argument.

Runs in a box as /__modal/.bin/modal-sandbox-fs-tools; standard library only.
"""

import json
import os
import shutil
import stat
import sys
import time

KINDS = (
    (FileNotFoundError, "NotFound", "No such file or directory"),
    (FileExistsError, "PathAlreadyExists", "The path already exists"),
    (NotADirectoryError, "NotDirectory", "A part of the path is not a directory"),
    (IsADirectoryError, "IsDirectory", "The path is a directory"),
    (PermissionError, "PermissionDenied", "Permission denied"),
)


def read_file(path):
    with open(path, "rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)


def write_file(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)


def list_files(path):
    found = [entry(os.path.join(path, name)) for name in sorted(os.listdir(path))]
    json.dump(found, sys.stdout)


def stat_file(path):
    json.dump(entry(path), sys.stdout)


def make_directory(path, parents):
    if os.path.isdir(path) and parents:
        return
    (os.makedirs if parents else os.mkdir)(path)


def remove(path, recursive):
    if not os.path.isdir(path) or os.path.islink(path):
        os.unlink(path)
    elif recursive:
        shutil.rmtree(path)
    else:
        os.rmdir(path)


def watch(path, recursive, filter, timeout_secs):
    """By looking twice a second; the real program is told by the kernel."""
    before, end = seen(path, recursive), time.monotonic() + (timeout_secs or 1e9)
    while time.monotonic() < end:
        time.sleep(0.05)
        after = seen(path, recursive)
        changes = [("Create", one) for one in after if one not in before]
        changes += [("Remove", one) for one in before if one not in after]
        changes += [("Modify", one) for one in after if before.get(one, after[one]) != after[one]]
        for kind, changed in changes:
            if not filter or kind in filter:
                print(json.dumps({"event_type": kind, "paths": [changed]}), flush=True)
        before = after


def seen(path, recursive):
    found = {}
    for directory, names, files in os.walk(path):
        for name in names + files:
            full = os.path.join(directory, name)
            found[full] = os.lstat(full).st_mtime_ns
        if not recursive:
            names.clear()
    return found


def entry(path):
    info = os.lstat(path)
    link = stat.S_ISLNK(info.st_mode)
    kind = "symlink" if link else "directory" if stat.S_ISDIR(info.st_mode) else "file"
    return {
        "name": os.path.basename(path.rstrip("/")) or "/",
        "path": path,
        "type": kind,
        "size": info.st_size,
        "mode": stat.S_IMODE(info.st_mode),
        "permissions": stat.filemode(info.st_mode),
        "owner": str(info.st_uid),
        "group": str(info.st_gid),
        "modified_time": info.st_mtime,
        "symlink_target": os.readlink(path) if link else None,
    }


COMMANDS = {
    "ReadFile": read_file,
    "WriteFile": write_file,
    "ListFiles": list_files,
    "Stat": stat_file,
    "MakeDirectory": make_directory,
    "Remove": remove,
    "Watch": watch,
}


def main():
    ((name, options),) = json.loads(sys.argv[1]).items()
    try:
        COMMANDS[name](**options)
        sys.stdout.flush()
    except OSError as error:
        kind, message = "Io", str(error)
        for sort, its_kind, its_message in KINDS:
            if isinstance(error, sort):
                kind, message = its_kind, its_message
        if error.errno == 39:
            kind, message = "DirectoryNotEmpty", "The directory is not empty"
        fields = {"error_kind": kind, "message": message, "detail": str(error)}
        json.dump(fields, sys.stderr)
        sys.exit(1)


main()
