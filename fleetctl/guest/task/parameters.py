"""Makes a program's environment variables: its parameters, as files where they are too long, and
the way past proxies to its endpoints.

Called by the process that starts a program, in the sandbox or on the host.
"""

from __future__ import annotations

import os

from fleetctl.guest.task.text import spaced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping

VARIABLE_BYTES_MAX = 128 * 1024 - 1  # one `NAME=value`: Linux's limit
ALL_BYTES_MAX = 1024 * 1024  # half of Linux's limit for all variables
_HERE = ("127.0.0.1", "localhost", "::1")
DIRECTORY = "long"  # beside the file with all parameters


def variable(name: str) -> str:
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
        other = first.setdefault(variable(name), name)
        if other != name:
            return other, name
    return "", ""


def parameter_texts(params: Mapping[str, Any]) -> dict[str, str]:
    """Returns the variables of all parameters, however long."""
    texts = {}
    for name, value in params.items():
        texts[variable(name)] = value if isinstance(value, str) else spaced(value)
    return texts


def past_proxies(variables: Mapping[str, str]) -> dict[str, str]:
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
