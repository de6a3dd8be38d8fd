"""Makes a program's environment variables, its parameters among them, as files where they are too
long, and gives a task its input files beside them.

A program sees no other file of its object, and the files are its own: what it does to them no
other task sees.
"""

from __future__ import annotations

import os

from fleetctl.guest.task.text import encode_spaced

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping


VARIABLE_BYTES_MAX = 128 * 1024 - 1  # one `NAME=value`: Linux's limit
ALL_BYTES_MAX = 1024 * 1024  # half of Linux's limit for all variables
_HERE = ("127.0.0.1", "localhost", "::1")
DIRECTORY = "long"  # beside the file with all parameters

INPUTS_DIRECTORY = "inputs"
_PIECE_BYTES = 1024 * 1024


def name_variable(name: str) -> str:
    """Returns the environment variable of a parameter. A process that forks others calls it once,
    so that they inherit the imported module.
    """
    known = _VARIABLES.get(name)
    if known is None:
        known = "TASK_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in name).upper()
        _VARIABLES[name] = known
    return known


def one_variable(names: Iterable[str]) -> tuple[str, str]:
    """Returns two names with one variable, of which a program sees the last alone; or "", ""."""
    first: dict[str, str] = {}
    for name in names:
        other = first.setdefault(name_variable(name), name)
        if other != name:
            return other, name
    return "", ""


def parameter_texts(params: Mapping[str, Any]) -> dict[str, str]:
    """Returns the variables of all parameters, however long."""
    texts = {}
    for name, value in params.items():
        texts[name_variable(name)] = value if isinstance(value, str) else encode_spaced(value)
    return texts


def bypass_proxies(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns variables that keep clients from sending model calls, and with them the attempt's
    key, to a proxy: the listener of its endpoints is on this machine. {} without endpoints.
    """
    if "FLEETCTL_LLM_URL" not in variables:
        return {}
    lower = variables.get("no_proxy", "")
    upper = variables.get("NO_PROXY", "")
    return {"no_proxy": _with_loopback(lower or upper), "NO_PROXY": _with_loopback(upper or lower)}


def _with_loopback(hosts: str) -> str:
    known = [it.strip() for it in hosts.split(",") if it.strip()]
    if "*" in known:
        return hosts
    return ",".join([*known, *(it for it in _HERE if it not in known)])


def long_variables(texts: Mapping[str, str]) -> list[str]:
    """Returns names that come as files, sorted: too long, or the longest of too many."""
    # A character has four bytes at most, and most parameters are short.
    if 4 * sum(map(len, texts.values())) + 64 * len(texts) < VARIABLE_BYTES_MAX:
        return []
    sizes = {name: len(name) + 1 + len(_bytes_of(text)) for name, text in texts.items()}
    left = sum(sizes.values())
    found = []
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if sizes[name] <= VARIABLE_BYTES_MAX and left <= ALL_BYTES_MAX:
            break
        found.append(name)
        left -= sizes[name]
    return sorted(found)


def parameter_variables(params: Mapping[str, Any], files: str) -> dict[str, str]:
    """Returns the variables of a program. files: the directory for those that come as files; files
    of an earlier task are removed. Raises OSError.
    """
    texts = parameter_texts(params)
    directory = f"{files}/{DIRECTORY}"
    found = long_variables(texts)
    if found or os.path.lexists(directory):
        _write_files(directory, {name: texts[name] for name in found})
    for name in found:
        del texts[name]
        texts[f"{name}_FILE"] = f"{directory}/{name}"
    return texts


def remark_on_long(params: Mapping[str, Any]) -> str:
    """Returns a sentence that names the parameters in files, or ""."""
    found = long_variables(parameter_texts(params))
    if not found:
        return ""
    files = ", ".join(f"${name}_FILE" for name in found)
    verb = "is" if len(found) == 1 else "are"
    return f"{', '.join(found)} {verb} too long for a variable: the text is in the file {files}"


def _write_files(directory: str, texts: Mapping[str, str]) -> None:
    """Replaces whole files, since a command may write them while its task reads."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        for name in set(os.listdir(directory)).difference(texts):
            os.unlink(f"{directory}/{name}")
    for name, text in texts.items():
        temporary = f"{directory}/.{name}.{os.getpid()}"
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(handle, "wb") as file:
            file.write(_bytes_of(text))
        os.rename(temporary, f"{directory}/{name}")


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


_VARIABLES: dict[str, str] = {}


def name_inputs(
    order: dict[str, Any],
    files: str,
    roots: Mapping[str, str] = {},
) -> dict[str, str]:
    """Puts the paths of a task's files into its parameters, in place of their contents' names;
    returns the variables that differ from those of parameters. files: absolute path of the
    directory that holds the file of its parameters. roots: the directories of volumes by their
    mount paths, where they are not mounted there. May be called again.
    """
    given = order.get("files")
    if not given:
        return {}
    paths = [_path_of(it, files, roots) for it in given]
    params = dict(order["params"])
    variables = {}
    if "file" in params:
        params["file"] = paths[0]
    else:
        params["files"] = paths
        variables["TASK_FILES"] = "\n".join(paths)
    order["params"] = params
    if "params_text" in order:
        order["params_text"] = encode_spaced(params)
    return variables


def _path_of(
    it: Mapping[str, str],
    files: str,
    roots: Mapping[str, str],
) -> str:
    if "mount" in it:
        return f"{roots.get(it['mount'], it['mount'])}/{it['path']}"
    return f"{files}/{INPUTS_DIRECTORY}/{it['name']}"


def write_inputs(order: dict[str, Any], files: str) -> None:
    """Writes a task's files, in place of those of an earlier task. Raises OSError."""
    given = order.get("files")
    directory = f"{files}/{INPUTS_DIRECTORY}"
    if os.path.islink(directory):
        os.unlink(directory)  # by an earlier task
    elif os.path.lexists(directory):
        remove_directory(directory)
    brought = [it for it in given or () if "mount" not in it]
    if not brought:
        return
    os.mkdir(directory, 0o700)
    for it in brought:
        path = f"{directory}/{it['name']}"
        if "/" in it["name"]:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(path, flags, 0o600)
        try:
            if "from" in it:
                _copy_file(it["from"], target)
            else:
                _write_all(target, _decode_base64(it.pop("b64")))  # an order is kept for long
        finally:
            os.close(target)


def remove_directory(directory: str) -> None:
    """Removes a directory that a task may have written to; links in it are not followed. Raises
    OSError.
    """
    os.chmod(directory, 0o700)
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                remove_directory(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(directory)


def _copy_file(origin: str, target: int) -> None:
    source = os.open(origin, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while piece := os.read(source, _PIECE_BYTES):
            _write_all(target, piece)
    finally:
        os.close(source)


def _write_all(target: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(target, left) :]


def _decode_base64(text: str) -> bytes:
    import binascii  # a module in C, which most tasks do without

    return binascii.a2b_base64(text)
