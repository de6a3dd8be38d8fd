"""The keys of `status` are declared once; what reads them by name reads no other."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import get_args

from fleetctl.controllers.status_keys import Count, Map, Text, Time, describe_keys


def test_each_key_has_a_sentence() -> None:
    assert all(describe_keys().values())


def test_a_name_that_a_screen_asks_for_is_a_key() -> None:
    asked = [name for kind in (Text, Count, Map, Time) for name in get_args(kind)]
    assert set(asked) <= describe_keys().keys()
    assert len(set(asked)) == len(asked)  # a key has one type


def test_what_sql_reads_of_a_status_is_a_key() -> None:
    sql = "".join(
        path.read_text()
        for path in (files("fleetctl") / "stores" / "sql").iterdir()
        if path.name.endswith(".sql")
    )
    found = set(re.findall(r"json_extract\((?:nullif\()?status\b[^$]*\$\.(\w+)", sql))
    assert found
    assert found <= describe_keys().keys()
