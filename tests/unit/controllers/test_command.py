from __future__ import annotations

import shlex
import subprocess

import pytest

from fleetctl.controllers.trials.command import (
    DEFAULT_COMMAND,
    MACROS,
    command_line,
    unknown_macros,
)

PARAMS = {"lr": 0.001, "flag": True, "off": False, "none": None, "sizes": [32, 64], "s": "a b"}


def argv(*command: str, env: dict[str, str] | None = None, params_file: str = "/p") -> list[str]:
    return command_line(command, "train.py", PARAMS, env or {}, params_file=params_file)


def test_a_search_without_a_command_runs_its_program_as_wandb_does() -> None:
    assert command_line(None, "train.py", {"lr": 0.1}, {}) == [
        "/usr/bin/env",
        "python",
        "train.py",
        "--lr=0.1",
    ]


@pytest.mark.parametrize(
    ("macro", "words"),
    [
        (
            "args",
            ["--lr=0.001", "--flag=True", "--off=False", "--none=None", "--sizes=[32, 64]"],
        ),
        (
            "args_no_equals",
            [
                "--lr",
                "0.001",
                "--flag",
                "True",
                "--off",
                "False",
                "--none",
                "None",
                "--sizes",
                "[32, 64]",
                "--s",
                "a b",
            ],
        ),
        ("args_no_hyphens", ["lr=0.001", "flag=True", "off=False"]),
        ("args_no_boolean_flags", ["--lr=0.001", "--flag", "--none=None", "--sizes=[32, 64]"]),
        ("args_append_hydra", ["+lr=0.001", "+flag=True", "+off=False"]),
        ("args_override_hydra", ["++lr=0.001", "++flag=True", "++off=False"]),
        (
            "args_json",
            [
                '{"lr": 0.001, "flag": true, "off": false, "none": null, '
                '"sizes": [32, 64], "s": "a b"}'
            ],
        ),
        ("args_json_file", ["/p"]),
        ("env", ["/usr/bin/env"]),
        ("interpreter", ["python"]),
        ("program", ["train.py"]),
    ],
)
def test_each_macro_becomes_its_words(macro: str, words: list[str]) -> None:
    assert macro in MACROS
    assert argv(f"${{{macro}}}")[: len(words)] == words


def test_a_macro_counts_only_as_an_element_of_its_own() -> None:
    assert argv("bash", "-c", "python x ${args}") == ["bash", "-c", "python x ${args}"]


def test_known_variables_are_put_in_anywhere() -> None:
    env = {"HOME": "/root", "N": "3"}
    assert argv("--out=${envvar:HOME}/${envvar:N}", env=env) == ["--out=/root/3"]


def test_what_only_the_sandbox_knows_is_left_to_a_shell_there() -> None:
    words = argv("printf", "%s|", "a'b ${envvar:SET_LATER}-${envvar:NOWHERE}", params_file="/p q")
    assert words[:2] == ["/bin/sh", "-c"]
    said = subprocess.run(words, env={"SET_LATER": "x y"}, capture_output=True, text=True)
    # An unset variable becomes its name.
    assert said.stdout == "a'b x y-NOWHERE|"


def test_the_file_of_parameters_is_found_in_the_sandbox() -> None:
    words = argv("printf", "%s|", "${args_json_file}", "${args_no_hyphens}", params_file="")
    said = subprocess.run(
        words, env={"FLEETCTL_PARAMS": "/x y.json"}, capture_output=True, text=True
    )
    assert said.stdout.split("|")[:2] == ["/x y.json", "lr=0.001"]


def test_values_never_become_shell_text() -> None:
    nasty = "'; touch /tmp/never; '$(id)`id`\n"
    words = command_line(
        ["printf", "%s", "${args_no_hyphens}", "${args_json_file}"], None, {"a": nasty}, {}
    )
    assert shlex.quote(f"a={nasty}") in words[2]
    said = subprocess.run(words, env={"FLEETCTL_PARAMS": ""}, capture_output=True, text=True)
    assert said.stdout == f"a={nasty}"


def test_macros_that_wandb_would_drop_are_named() -> None:
    assert unknown_macros(["${arg}", "${args}", "x${nope}", "${envvar:A}", "${}"]) == [
        "${arg}",
        "${}",
    ]
    assert unknown_macros(DEFAULT_COMMAND) == []
