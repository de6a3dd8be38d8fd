"""`fleetctl completion`: prints the script that a shell loads. It calls `fleetctl __complete` for
words."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from fleetctl.cli.command.flags import Parser, one_of
from fleetctl.cli.output.screen import Screen

SHELLS = ("bash", "zsh", "fish")


PAGE = """\
bash|zsh|fish

Print the script that completes verbs, flags, kinds, fields and names of objects.
Put the line of your shell into its start-up file: ~/.bashrc, ~/.zshrc (after
compinit) or ~/.config/fish/config.fish.

examples:
  source <(fleetctl completion bash)
  source <(fleetctl completion zsh)
  fleetctl completion fish | source

exit codes:
  0 ok, 2 no such shell
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("shell", type=one_of(*SHELLS), metavar="SHELL", help="bash, zsh or fish")
    return made


def run(args: Namespace, screen: Screen) -> int:
    script = Path(__file__).parent / "completions" / f"fleetctl.{args.shell}"
    screen.data(script.read_text(encoding="utf-8").rstrip())
    return 0
