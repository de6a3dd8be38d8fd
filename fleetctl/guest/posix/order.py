"""Writes an order as the POSIX guest reads it: a text for the shell. Called by providers; pure.

Values of secrets are not in it: they are in the guest's environment, from which the order removes
them for everything but the task and the preparations of its sandbox.
"""

from __future__ import annotations

import base64
import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from fleetctl.guest.journal.ending import timed_out
from fleetctl.guest.journal.results import NO_FILE
from fleetctl.guest.task.parameters import long_variables, parameter_texts, remark_on_long
from fleetctl.guest.task.program import cannot_enter, not_executable, not_found

_STATE = "//fleetctl.state//"  # which no parameter holds by chance, and JSON leaves as it is
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def posix_order(order: Mapping[str, Any]) -> str:
    """Returns the shell text. order: as the Python guest reads it; see remote/run/attempt.py."""
    argv = list(order["argv"])
    secrets = [name for name in order["secret_names"] if _NAME.fullmatch(name)]
    named, paths = _name_inputs(order)
    variables = [*_LOCALE, *_export_variables(order, named), *_write_inputs(order, paths)]

    lines = [f"{name}={shlex.quote(value)}" for name, value in _list_values(order).items()]
    lines.append(f"params={_quote_paths(json.dumps(named), '$PWD')}")
    if order.get("data"):
        lines.append(f"ulimit -d {order['data'] // 1024} 2>/dev/null")
    for number, step in enumerate(order["setup"]):
        lines.append(f"step_{number}() {{ exec $alone {shlex.join(step)}; }}")
    lines += [
        f"task() {{ exec $alone {shlex.join(_set_odd_variables(order) + argv)}; }}",
        _write_function("hold_secrets", [_HOLD.format(name=name) for name in secrets]),
        _write_function("give_secrets", [_GIVE.format(name=name) for name in secrets]),
        _write_function("give_variables", variables),
        _write_function("make_links", _write_links(order)),
        _write_function("sync_mounts", [f"sync_one {shlex.quote(path)}" for path in order["sync"]]),
    ]
    return "\n".join(lines)


def _list_values(order: Mapping[str, Any]) -> dict[str, str]:
    """Returns the shell variables of the guest itself, by name."""
    argv = list(order["argv"])
    workdir = order["workdir"]
    timeout_s = order["timeout_s"]
    whole, fraction = _split_timeout(timeout_s)
    identity = {"keeper": "", "note": "", **order["identity"]}
    no_directory = cannot_enter(_find_directory(order), workdir, "No such file or directory")
    sync_ticks = ""
    if order["sync_s"] and order["sync"]:
        sync_ticks = str(max(1, math.ceil(order["sync_s"])))
    return {
        "identity": json.dumps(identity, separators=(",", ":"))[1:-1],
        "note": _encode_inside(str(identity["note"])),
        "source": order["source"]["dir"] if order["source"] else "",
        "workdir": workdir or "",
        "program": argv[0],
        "not_found": _encode_inside(not_found(argv, "the image's PATH")),
        "not_executable": _encode_inside(not_executable(argv[0])),
        "no_directory": _encode_inside(no_directory),
        "remark": remark_on_long(order["params"]),
        "odd_result": _encode_inside(NO_FILE.format(sort="no file")),
        "timed_out": _encode_inside(timed_out(timeout_s)),
        "timeout_whole": whole,
        "timeout_fraction": fraction,
        "grace": f"{order['grace_s']:.1f}",
        "reusable": "true" if order["reusable"] else "false",
        "sync_ticks": sync_ticks,
        "linger_s": f"{order['linger_s']:.1f}",
        "log_bytes_max": str(order["log_bytes_max"]),
        "steps": " ".join(f"step_{number}" for number in range(len(order["setup"]))),
    }


def _write_function(name: str, lines: list[str]) -> str:
    return "\n".join([f"{name}() {{", *lines, "return 0", "}"])


def _name_inputs(order: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns (the parameters with the paths of the task's files, these paths); the state
    directory in a path is _STATE, as its own path is known in the sandbox alone.
    """
    params = dict(order["params"])
    paths = [
        f"{it['mount']}/{it['path']}" if "mount" in it else f"{_STATE}/files/inputs/{it['name']}"
        for it in order.get("files") or ()
    ]
    if paths:
        params |= {"file": paths[0]} if "file" in params else {"files": paths}
    return params, paths


def _quote_paths(text: str, state: str) -> str:
    """Quotes a text, with the state directory in place of _STATE."""
    return f'"{state}"'.join(shlex.quote(it) if it else "" for it in text.split(_STATE)) or "''"


def _write_inputs(order: Mapping[str, Any], paths: list[str]) -> Iterator[str]:
    """Writes the files of a task, by the shell's own `printf`, which takes any length."""
    yield 'rm -rf "$state/files/inputs"'
    for it, path in zip(order.get("files") or (), paths):  # Python 3.9
        if "mount" in it:
            continue
        target = _quote_paths(path, "$state")
        yield f"mkdir -p {_quote_paths(path.rpartition('/')[0], '$state')}"
        data = base64.b64decode(it["b64"])
        yield f"printf '{encode_bytes(data)}' >{target}"
    if paths and "file" not in order["params"]:
        yield "export TASK_FILES=" + _quote_paths("\n".join(paths), "$state")


def encode_bytes(data: bytes) -> str:
    """Returns bytes on one line as `printf` of any shell takes them inside of single quotes; what
    could be an option is no plain character either.
    """
    return "".join(map(_ESCAPED.__getitem__, data))


def _escape_byte(byte: int) -> str:
    if ord(" ") <= byte < 0x7F and byte not in b"%'\\-":
        return chr(byte)
    return f"\\{byte:03o}"


def _export_variables(order: Mapping[str, Any], params: Mapping[str, Any]) -> list[str]:
    """Exports all variables of a task's environment. params: with the paths of its files."""
    values = {name: text for name, text in order["env"].items() if _NAME.fullmatch(name)}
    values |= {
        "FLEETCTL_RUN": order["run"],
        "FLEETCTL_ATTEMPT": str(order["attempt"]),
        "JOB_COMPLETION_INDEX": str(order["index"]),
    }
    values |= {volume["variable"]: volume["mount"] for volume in order["volumes"]}
    texts = parameter_texts(params)
    found = long_variables(texts)
    values |= {name: text for name, text in texts.items() if name not in found}
    exports = [f"export {name}={_quote_paths(text, '$state')}" for name, text in values.items()]
    exports += ['rm -rf "$state/files/long"', *_write_parameters(texts, found)]
    files = {"PARAMS": "params.json", "RESULT": "result.json", "METRICS": "metrics.jsonl"}
    return exports + [
        f'export FLEETCTL_{name}="$state/files/{file}"' for name, file in files.items()
    ]


def _write_parameters(texts: Mapping[str, str], found: list[str]) -> Iterator[str]:
    """Writes parameters that come as files; `printf` is a part of the shell, and takes texts of any
    length.
    """
    if found:
        yield 'mkdir -p "$state/files/long"'
    for name in found:
        file = f'"$state/files/long/{name}"'
        yield f"printf %s {shlex.quote(texts[name])} >{file}"
        yield f"export {name}_FILE={file}"


def _set_odd_variables(order: Mapping[str, Any]) -> list[str]:
    """Sets by `env` the variables whose names no shell can set."""
    odd = [f"{name}={text}" for name, text in order["env"].items() if not _NAME.fullmatch(name)]
    if odd:
        return ["env", *odd]
    return []


def _write_links(order: Mapping[str, Any]) -> list[str]:
    lines = []
    for volume in order["volumes"]:
        mount = volume["mount"]
        for link in volume["links"]:
            failure = _encode_inside(_NO_LINK.format(link=link, mount=mount))
            words = (shlex.quote(it) for it in (link, mount, failure))
            lines.append(f"lead {' '.join(words)} || return 1")
    return lines


def _find_directory(order: Mapping[str, Any]) -> str:
    start = order["source"]["dir"] if order["source"] else "work"
    return str(PurePosixPath(start) / (order["workdir"] or ""))


def _split_timeout(timeout_s: float | None) -> tuple[str, str]:
    """Returns (whole seconds, the rest as `sleep` takes it); ("", "0") for no limit."""
    if timeout_s is None:
        return "", "0"
    hundredths = math.ceil(timeout_s * 100)
    return str(hundredths // 100), f"0.{hundredths % 100:02}" if hundredths % 100 else "0"


def _encode_inside(text: str) -> str:
    """Encodes as the inside of a JSON string in ASCII."""
    return json.dumps(text)[1:-1]


_ESCAPED = [_escape_byte(byte) for byte in range(256)]
_HOLD = 'if [ "${{{name}+x}}" ]; then held_{name}=${name}; unset {name}; fi'
_GIVE = 'if [ "${{held_{name}+x}}" ]; then export {name}="$held_{name}"; fi'
_LOCALE = ['if [ "${their_locale+x}" ]; then LC_ALL=$their_locale; else unset LC_ALL; fi']
_NO_LINK = (
    "`{link}` cannot become a link to the volume at `{mount}`;"
    " in the image it must be missing or an empty directory"
)
