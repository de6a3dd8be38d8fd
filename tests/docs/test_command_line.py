"""What docs/reference says of the command line can be typed."""

from __future__ import annotations

import re
import shlex
from importlib import import_module

import pytest

from fleetctl.cli.command.verbs import VERBS
from tests.docs.fleet import ROOT

PAGE = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
SAID = [it for it in re.findall(r"`([a-z][^`\n]+)`", PAGE) if it.split()[0] in VERBS and " " in it]


@pytest.mark.parametrize("said", sorted(set(SAID)))
def test_a_command_of_the_page_can_be_typed(said: str) -> None:
    verb, *words = shlex.split(said)
    # The page shows fragments, such as `delete --all`; a flag or a word that is none is refused.
    import_module(f"fleetctl.cli.{VERBS[verb].module}").parser(verb).parse(words)


def test_the_page_shows_some() -> None:
    assert len(SAID) > 5
