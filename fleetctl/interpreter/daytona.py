"""Interpreters in the manner of Daytona's: code works in the checkout of a repository."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetctl.errors import UsageError
from fleetctl.interpreter.interpreter import BaseInterpreter
from fleetctl.interpreter.modal import refuse_language_model
from fleetctl.interpreter.options import (
    ExecutionProfile,
    Manner,
    Options,
    chosen_provider,
    split_secrets,
)

MEMORY_PATH = "/home/daytona/memory"


class DaytonaInterpreter(BaseInterpreter):
    """Python code in the checkout of a repository, with helpers for its files and for programs.

    provider: where; else $FLEETCTL_PROVIDER, else `daytona`.
    repo_url, repo_ref: what is cloned and where code then works (REPO_PATH); a branch, tag or
    commit. Without one, an empty directory.
    timeout: seconds that a sandbox lives; execute_timeout: that one execution may take.
    volume_name: a volume, made when it does not exist, at /home/daytona/memory (MEMORY_ROOT) with
    the folders memory, artifacts, buffers and meta. Without one, that directory goes with the
    sandbox.
    secrets: {variable: value}, or names of secrets that the provider keeps.
    sandbox_spec: Daytona's own settings of the sandbox; the other providers refuse it.
    async_execute: accepted for compatibility; every method here has a twin that never blocks.
    sub_lm: refused, as there is no llm_query yet.
    """

    def __init__(
        self,
        *,
        provider: str | None = None,
        timeout: float = 900,
        execute_timeout: float | None = None,
        volume_name: str | None = None,
        repo_url: str | None = None,
        repo_ref: str | None = None,
        sandbox_spec: object | None = None,
        secrets: Mapping[str, str] | Sequence[object] | None = None,
        sub_lm: object | None = None,
        default_execution_profile: ExecutionProfile | str = ExecutionProfile.RLM_DELEGATE,
        async_execute: bool = True,  # noqa: ARG002 - see the docstring
    ) -> None:
        refuse_language_model(sub_lm)
        if repo_ref is not None and repo_url is None:
            raise UsageError(f"repo_ref is `{repo_ref}` and there is no repo_url")
        values, names, objects = split_secrets(secrets, None)
        options = Options(
            provider=chosen_provider(provider, "daytona"),
            manner=Manner.DAYTONA,
            timeout_s=timeout,
            execute_timeout_s=execute_timeout,
            volume=volume_name,
            mount_path=MEMORY_PATH,
            repository=None if repo_url is None else (repo_url, repo_ref),
            secrets=values,
            secret_names=names,
            native={"sandbox_spec": sandbox_spec, "secrets": objects or None},
        )
        super().__init__(options, ExecutionProfile(default_execution_profile))
