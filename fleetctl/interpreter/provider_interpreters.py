"""Interpreters in the manner of Modal's and of Daytona's: the first on any provider, the second in
the checkout of a repository.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetctl.common.errors import Refused, UsageError
from fleetctl.interpreter.interpreter import BaseInterpreter
from fleetctl.interpreter.options import (
    AtDepth,
    ChildPlacement,
    ExecutionProfile,
    InterpreterFamily,
    InterpreterOptions,
    chosen_provider,
    parse_choice,
    split_secrets,
)

APP_NAME = "fleetctl-interpreter"

MEMORY_PATH = "/home/daytona/memory"


class Interpreter(BaseInterpreter):
    """Python code in a sandbox: helpers for texts, buffers and a volume; SUBMIT with any arguments.

    provider: its name; else $FLEETCTL_PROVIDER, else `local`.
    timeout: seconds that a sandbox lives; idle_timeout: that it lives idle;
    execute_timeout: of one execution at most, by default as long as the sandbox lives.
    image_python_version, image_pip_packages: of the sandbox; by default those of the provider's
    interpreters (`local`: the Python that runs this, `modal`: 3.12 with numpy and pandas).
    volume_name: a volume, made when it does not exist, at volume_mount_path.
    secrets: {variable: value}, or names of secrets that the provider keeps (or its own objects);
    secret_name: one more such name. image, app, app_name: the provider's own, for Modal; on `ssh`
    and `slurm`, image is the reference of an image of a registry.
    summarize_stdout: text of more than stdout_summary_threshold characters becomes its size and its
    first stdout_summary_prefix_len characters.
    async_execute: accepted for compatibility; every method here has a twin that never blocks.
    sub_lm: a function (or coroutine function) from a prompt to a text, or a model of dspy's, which
    llm_query and llm_query_batched call; max_llm_calls in all, llm_call_timeout seconds each.
    endpoint: instead of sub_lm, the base URL of a server with OpenAI's protocol, or `env` for
    $OPENAI_BASE_URL; with $OPENAI_API_KEY and $FLEETCTL_LLM_MODEL.
    max_depth, max_sandboxes, batch_concurrency: of recursive queries (rlm_query, sub_rlm): levels
    below this one, sandboxes that all queries make, and how many of a batch run at once.
    max_llm_calls counts for all levels together. children: a query works in a `context` of this
    sandbox or in a `sandbox` of its own; at_depth: below max_depth it is a plain `query` or an
    error (`raise`).
    max_llm_tokens, max_llm_usd: of all calls of the model, as max_llm_calls counts them; USD by
    llm_prices, {model: {"inputPerMillion": USD, "outputPerMillion": USD}} with `*` for any other.
    rlm_timeout: seconds of a recursive query with all below it, which end then.
    """

    _default_provider = "local"

    def __init__(
        self,
        *,
        provider: str | None = None,
        image: object | None = None,
        app: object | None = None,
        secrets: Mapping[str, str] | Sequence[object] | None = None,
        timeout: float = 600,
        idle_timeout: float | None = None,
        execute_timeout: float | None = None,
        app_name: str = APP_NAME,
        secret_name: str | None = None,
        image_python_version: str | None = None,
        image_pip_packages: Sequence[str] | None = None,
        volume_name: str | None = None,
        volume_mount_path: str = "/data",
        summarize_stdout: bool = True,
        stdout_summary_threshold: int = 10_000,
        stdout_summary_prefix_len: int = 200,
        sub_lm: object | None = None,
        max_llm_calls: int = 50,
        llm_call_timeout: float = 60,
        endpoint: str | None = None,
        max_depth: int = 2,
        max_sandboxes: int = 50,
        batch_concurrency: int = 4,
        children: ChildPlacement | str = ChildPlacement.CONTEXT,
        at_depth: AtDepth | str = AtDepth.QUERY,
        max_llm_tokens: int | None = None,
        max_llm_usd: float | None = None,
        llm_prices: Mapping[str, Mapping[str, float]] | None = None,
        rlm_timeout: float | None = 3600,
        default_execution_profile: ExecutionProfile | str = ExecutionProfile.RLM_DELEGATE,
        async_execute: bool = True,  # see the docstring
    ) -> None:
        values, names, objects = split_secrets(secrets, secret_name)
        options = InterpreterOptions(
            provider=chosen_provider(provider, self._default_provider),
            manner=InterpreterFamily.MODAL,
            timeout_s=timeout,
            idle_timeout_s=idle_timeout,
            execute_timeout_s=execute_timeout,
            python_version=image_python_version,
            pip_packages=None if image_pip_packages is None else tuple(image_pip_packages),
            volume=volume_name,
            mount_path=volume_mount_path,
            secrets=values,
            secret_names=names,
            native={"image": image, "app": app, "app_name": app_name, "secrets": objects or None},
            summary_threshold=stdout_summary_threshold if summarize_stdout else None,
            summary_prefix=stdout_summary_prefix_len,
            llm_calls_max=max_llm_calls,
            llm_call_timeout_s=llm_call_timeout,
            depth_max=max_depth,
            sandboxes_max=max_sandboxes,
            batch_concurrency=batch_concurrency,
            children=parse_choice(ChildPlacement, "children", children),
            at_depth=parse_choice(AtDepth, "at_depth", at_depth),
            llm_tokens_max=max_llm_tokens,
            llm_usd_max=max_llm_usd,
            llm_prices=dict(llm_prices or {}),
            rlm_timeout_s=rlm_timeout,
        )
        super().__init__(options, ExecutionProfile(default_execution_profile), sub_lm, endpoint)


class ModalInterpreter(Interpreter):
    """`Interpreter` on provider `modal`, unless `provider` or $FLEETCTL_PROVIDER names another."""

    _default_provider = "modal"


class DaytonaInterpreter(BaseInterpreter):
    """Python code in the checkout of a repository, with helpers for its files and for programs.

    provider: its name; else $FLEETCTL_PROVIDER, else `daytona`.
    repo_url, repo_ref: the repository to clone, code then works in it (REPO_PATH); a branch, tag
    or commit. Without one, an empty directory.
    timeout: seconds that a sandbox lives; execute_timeout: of one execution at most.
    volume_name: a volume, made when it does not exist, at /home/daytona/memory (MEMORY_ROOT) with
    the folders memory, artifacts, buffers and meta. Without one, that directory goes with the
    sandbox.
    secrets: {variable: value}, or names of secrets that the provider keeps.
    sandbox_spec: Daytona's own settings of the sandbox; the other providers refuse it.
    async_execute: accepted for compatibility; every method here has a twin that never blocks.
    sub_lm: a function (or coroutine function) from a prompt to a text, or a model of dspy's, which
    llm_query and llm_query_batched call; max_llm_calls in all, llm_call_timeout seconds each.
    endpoint: instead of sub_lm, the base URL of a server with OpenAI's protocol, or `env` for
    $OPENAI_BASE_URL; with $OPENAI_API_KEY and $FLEETCTL_LLM_MODEL.
    max_depth, max_sandboxes, batch_concurrency: of recursive queries (rlm_query, sub_rlm): levels
    below this one, sandboxes that all queries make, and how many of a batch run at once.
    max_llm_calls counts for all levels together. children: a query works in a `context` of this
    sandbox or in a `sandbox` of its own; at_depth: below max_depth it is a plain `query` or an
    error (`raise`).
    max_llm_tokens, max_llm_usd: of all calls of the model, as max_llm_calls counts them; USD by
    llm_prices, {model: {"inputPerMillion": USD, "outputPerMillion": USD}} with `*` for any other.
    rlm_timeout: seconds of a recursive query with all below it, which end then.
    runtime, owns_runtime: a connection of another library's, which is refused; ours makes its own.
    context_paths: refused; name them in `upload_to_volume`. delete_session_on_shutdown: only True,
    as no sandbox outlives its interpreter.
    """

    def __init__(
        self,
        *,
        provider: str | None = None,
        runtime: object | None = None,
        owns_runtime: bool = False,  # of no runtime
        timeout: float = 900,
        execute_timeout: float | None = None,
        volume_name: str | None = None,
        repo_url: str | None = None,
        repo_ref: str | None = None,
        context_paths: Sequence[str] | None = None,
        sandbox_spec: object | None = None,
        secrets: Mapping[str, str] | Sequence[object] | None = None,
        delete_session_on_shutdown: bool = True,
        sub_lm: object | None = None,
        max_llm_calls: int = 50,
        llm_call_timeout: float = 60,
        endpoint: str | None = None,
        max_depth: int = 2,
        max_sandboxes: int = 50,
        batch_concurrency: int = 4,
        children: ChildPlacement | str = ChildPlacement.CONTEXT,
        at_depth: AtDepth | str = AtDepth.QUERY,
        max_llm_tokens: int | None = None,
        max_llm_usd: float | None = None,
        llm_prices: Mapping[str, Mapping[str, float]] | None = None,
        rlm_timeout: float | None = 3600,
        default_execution_profile: ExecutionProfile | str = ExecutionProfile.RLM_DELEGATE,
        async_execute: bool = True,  # see the docstring
    ) -> None:
        _refuse_arguments(
            runtime, context_paths, delete_session_on_shutdown=delete_session_on_shutdown
        )
        repository = _parse_repository(repo_url, repo_ref)
        values, names, objects = split_secrets(secrets, None)
        options = InterpreterOptions(
            provider=chosen_provider(provider, "daytona"),
            manner=InterpreterFamily.DAYTONA,
            timeout_s=timeout,
            execute_timeout_s=execute_timeout,
            volume=volume_name,
            mount_path=MEMORY_PATH,
            repository=repository,
            secrets=values,
            secret_names=names,
            native={"sandbox_spec": sandbox_spec, "secrets": objects or None},
            llm_calls_max=max_llm_calls,
            llm_call_timeout_s=llm_call_timeout,
            depth_max=max_depth,
            sandboxes_max=max_sandboxes,
            batch_concurrency=batch_concurrency,
            children=parse_choice(ChildPlacement, "children", children),
            at_depth=parse_choice(AtDepth, "at_depth", at_depth),
            llm_tokens_max=max_llm_tokens,
            llm_usd_max=max_llm_usd,
            llm_prices=dict(llm_prices or {}),
            rlm_timeout_s=rlm_timeout,
        )
        super().__init__(options, ExecutionProfile(default_execution_profile), sub_lm, endpoint)


def _parse_repository(url: str | None, ref: str | None) -> tuple[str, str | None] | None:
    if url is not None:
        return url, ref
    if ref is not None:
        raise UsageError(f"repo_ref is `{ref}` and there is no repo_url")
    return None


def _refuse_arguments(
    runtime: object | None,
    context_paths: Sequence[str] | None,
    *,
    delete_session_on_shutdown: bool,
) -> None:
    """Refuses arguments that programs written for an earlier interpreter may pass, and that have no
    effect here.
    """
    if runtime is not None:
        raise Refused(
            f"runtime is a `{type(runtime).__name__}`, and this interpreter makes its own"
            " connection",
            hint="leave it out; DAYTONA_API_KEY and DAYTONA_API_URL say where and as whom",
        )
    if context_paths:
        raise Refused(
            "context_paths is not supported yet: no local file is put into the checkout",
            hint="pass volume_name, and bring them with upload_to_volume(local_files={...})",
        )
    if not delete_session_on_shutdown:
        raise Refused(
            "delete_session_on_shutdown is `False`, and a sandbox never outlives its interpreter",
            hint="pass volume_name: what is under MEMORY_ROOT stays",
        )
