"""Writes the file in which `wandb.init` finds the parameters of a trial, as `wandb agent` does.

wandb reads it with PyYAML, so by YAML 1.1: there `3e-05` is a text, and `on` is true. Numbers are
written as PyYAML writes them, and each text in quotes. Pure; called by trial.py.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping


def parameter_file(params: Mapping[str, Any]) -> str:
    lines = [
        f'{_quote_text(name)}: {{"value": {_write_yaml(value)}}}\n'
        for name, value in params.items()
    ]
    return "".join(["wandb_version: 1\n", *lines])


def _write_yaml(value: Any) -> str:
    """Returns a JSON value in one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        if value:
            return "true"
        return "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _write_float(value)
    if isinstance(value, str):
        return _quote_text(value)
    if isinstance(value, dict):
        inside = (f"{_quote_text(str(name))}: {_write_yaml(it)}" for name, it in value.items())
        return "{" + ", ".join(inside) + "}"
    return "[" + ", ".join(map(_write_yaml, value)) + "]"


def _write_float(value: float) -> str:
    """Writes a point, also before an exponent: Python's `1e-05` would be a text."""
    if value != value:
        return ".nan"
    if value - value != 0:
        if value > 0:
            return ".inf"
        return "-.inf"
    digits, letter, exponent = repr(value).partition("e")
    if "." not in digits:
        digits += ".0"
    return digits + letter + exponent


def _quote_text(text: str) -> str:
    return '"' + "".join(map(_quote_character, text)) + '"'


def _quote_character(one: str) -> str:
    code = ord(one)
    if 32 <= code < 127:
        if one in '"\\':
            return "\\" + one
        return one
    if code < 256:
        return f"\\x{code:02x}"
    if code < 65536:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"
