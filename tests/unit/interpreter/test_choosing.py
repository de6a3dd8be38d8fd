"""Where an interpreter runs, and what is refused before anything is started."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fleetctl
from fleetctl import DaytonaInterpreter, Interpreter, ModalInterpreter
from fleetctl.common.errors import Refused, UsageError
from fleetctl.common.install import install_hint
from fleetctl.interpreter.interpreter import BaseInterpreter
from fleetctl.interpreter.result import redact_text
from fleetctl.specs.builtin import SORTS, BuiltInProvider
from fleetctl.wiring.plugins import plugin_of


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FLEETCTL_PROVIDER", raising=False)


@pytest.mark.parametrize(
    ("kind", "default"),
    [(Interpreter, "local"), (ModalInterpreter, "modal"), (DaytonaInterpreter, "daytona")],
)
def test_the_argument_goes_before_the_variable_and_that_before_the_class(
    kind: Any, default: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kind().provider == default
    monkeypatch.setenv("FLEETCTL_PROVIDER", "elsewhere")
    assert kind().provider == "elsewhere"
    assert kind(provider="here").provider == "here"


def test_an_unknown_provider_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        Refused, match="`nowhere` is not a provider that interpreters run on"
    ) as told:
        Interpreter(provider="nowhere").start()
    assert "FLEETCTL_PROVIDER" in told.value.hint


def test_a_missing_package_is_told_with_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "needs_sdk.py").write_text("import a_package_that_nobody_has\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    cloud = ModuleType("fleetctl.providers.cloud.plugin")
    cloud.__dict__["PLUGIN"] = plugin_of("local")._replace(session="needs_sdk:open_session")
    monkeypatch.setitem(sys.modules, cloud.__name__, cloud)
    monkeypatch.setitem(sys.modules, "fleetctl.providers.cloud", ModuleType("cloud"))
    monkeypatch.setitem(SORTS, "cloud", BuiltInProvider())
    with pytest.raises(Refused, match="needs the package `a_package_that_nobody_has`") as told:
        Interpreter(provider="cloud").start()
    assert told.value.hint == install_hint("cloud")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": 0}, "timeout is `0`"),
        ({"timeout": float("nan")}, "timeout is `nan`"),
        ({"execute_timeout": -1}, "execute_timeout is `-1`"),
        ({"idle_timeout": float("inf")}, "idle_timeout is `inf`"),
        ({"volume_mount_path": "data"}, "volume_mount_path is `data`"),
    ],
)
def test_options_that_cannot_be_are_told(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Interpreter(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"image": object()}, "`image` is an object of another provider"),
        ({"secrets": [object()]}, "`secrets` is an object of another provider"),
        ({"secrets": ["LITELLM"]}, "secret `LITELLM` is kept by another provider"),
        ({"secret_name": "LITELLM"}, "secret `LITELLM` is kept by another provider"),
    ],
)
def test_what_only_another_provider_understands_is_refused_here(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        Interpreter(provider="local", **options).start()


def test_a_python_version_that_is_none_is_told() -> None:
    with pytest.raises(UsageError, match="python is `three`"):
        Interpreter(provider="local", image_python_version="three").start()


def test_a_language_model_that_cannot_be_called_is_refused() -> None:
    for kind in (Interpreter, DaytonaInterpreter):
        with pytest.raises(UsageError, match="sub_lm is a object"):
            kind(provider="local", sub_lm=object())


MODAL_SIGNATURE = {
    "image", "app", "secrets", "timeout", "idle_timeout", "execute_timeout", "app_name",
    "secret_name", "image_python_version", "image_pip_packages", "volume_name",
    "volume_mount_path", "summarize_stdout", "stdout_summary_threshold",
    "stdout_summary_prefix_len", "sub_lm", "max_llm_calls", "llm_call_timeout",
    "default_execution_profile", "async_execute",
}  # fmt: skip
OURS = (
    *("endpoint", "max_depth", "max_sandboxes", "batch_concurrency"),
    *("children", "at_depth"),
    *("max_llm_tokens", "max_llm_usd", "llm_prices", "rlm_timeout"),
)
DAYTONA_SIGNATURE = {
    "runtime", "owns_runtime", "timeout", "execute_timeout", "volume_name", "repo_url",
    "repo_ref", "context_paths", "sandbox_spec", "delete_session_on_shutdown", "sub_lm",
    "max_llm_calls", "llm_call_timeout", "default_execution_profile", "async_execute",
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "names", "ours"),
    [
        (ModalInterpreter, MODAL_SIGNATURE, {"provider", *OURS}),
        (DaytonaInterpreter, DAYTONA_SIGNATURE, {"provider", "secrets", *OURS}),
    ],
)
def test_every_option_of_the_first_interpreters_of_each_sort_is_known(
    kind: type[BaseInterpreter], names: set[str], ours: set[str]
) -> None:
    known = inspect.signature(kind).parameters
    assert set(known) == names | ours
    assert {one.kind for one in known.values()} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("kind", [Interpreter, ModalInterpreter, DaytonaInterpreter])
def test_limits_of_calls_to_a_language_model_are_kept_and_checked(
    kind: type[Interpreter] | type[DaytonaInterpreter],
) -> None:
    made = kind(provider="local", max_llm_calls=7, llm_call_timeout=1.5)
    assert (made._options.llm_calls_max, made._options.llm_call_timeout_s) == (7, 1.5)
    assert kind(provider="local")._options.llm_calls_max == 50
    with pytest.raises(UsageError, match="max_llm_calls is `-1`"):
        kind(provider="local", max_llm_calls=-1)
    wrong = {"llm_call_timeout": 0, "max_depth": -1, "max_sandboxes": -1, "batch_concurrency": 0}
    for name, value in {**wrong, "children": "thread", "at_depth": "stop", "endpoint": "x"}.items():
        with pytest.raises(UsageError, match=f"{name} is `{value}`; it must be"):
            kind(provider="local", **{name: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("runtime", object()),
        ("context_paths", ["notes.txt"]),
        ("delete_session_on_shutdown", False),
    ],
)
def test_what_an_interpreter_of_daytonas_manner_cannot_do_is_refused_by_its_name(
    option: str, value: object
) -> None:
    with pytest.raises(Refused, match=option) as told:
        DaytonaInterpreter(provider="local", **{option: value})  # type: ignore[arg-type]
    assert told.value.hint


def test_a_variable_must_be_a_name() -> None:
    with pytest.raises(UsageError, match="variable `a b`"):
        Interpreter(provider="local").execute("1", {"a b": 1})


def test_the_package_has_the_names_of_the_api_and_no_others() -> None:
    for name in fleetctl.__all__:
        assert getattr(fleetctl, name).__name__ == name
    assert issubclass(ModalInterpreter, BaseInterpreter)
    with pytest.raises(AttributeError, match="no attribute `Nothing`"):
        fleetctl.Nothing  # noqa: B018


@pytest.mark.parametrize("words", [["--help"], ["get", "jobs"]])
def test_the_command_line_imports_nothing_of_the_api(words: list[str]) -> None:
    program = (
        "import sys\n"
        "from fleetctl.cli.main import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "print([name for name in sys.modules if 'interpreter' in name and 'fleetctl' in name],"
        " file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_importing_the_api_imports_neither_models_nor_sdks() -> None:
    program = (
        "import sys\nfrom fleetctl import ModalInterpreter\n"
        "print([name for name in ('pydantic', 'modal', 'daytona') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_credentials_never_stay_in_a_message() -> None:
    said = redact_text(
        "KEY tops3cret, sk-abcdefghijkl, Authorization: Bearer a.b.c, api_key=12 and token: 34",
        ["tops3cret", "KEY"],
    )
    assert said == "KEY ***, ***, Authorization: Bearer ***, api_key=*** and token: ***"
