"""Finds values that look like credentials: a manifest is stored, shown and shared. Warned of in
variables; refused in the address of a webhook, whose secret has a field of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.finding import Finding, Severity
from fleetctl.common.redaction import CREDENTIAL_NAME, has_credential_field
from fleetctl.manifest.checks import spec_parts
from fleetctl.specs.blocks.notify import GITHUB_TOKEN, GITLAB_TOKEN, WEBHOOK_URL
from fleetctl.specs.values.scalars import Spec

# Shorter ones are names and switches, such as KEY=name; real credentials are long.
CREDENTIAL_LENGTH_MIN = 16
_WEBHOOK_HINT = f"put the URL into a Secret, as `{WEBHOOK_URL}`, and name that in `secret`"
_TOKEN_HINT = (
    f"the Secret that `secret` names has the token, as `{GITHUB_TOKEN}` or `{GITLAB_TOKEN}`"
)


def find_problems(spec: Spec) -> Iterator[Finding]:
    """Yields a finding for each sink with a credential in the query of its URL; no finding contains
    the value.
    """
    for number, rule in enumerate(getattr(spec, "notify", ())):
        for field, sink, hint in (
            ("webhook", rule.webhook, _WEBHOOK_HINT),
            ("commitStatus", rule.commit_status, _TOKEN_HINT),
        ):
            if sink is not None and sink.url is not None and has_credential_field(sink.url):
                path = ("spec", "notify", number, field, "url")
                message = " holds what looks like a credential; a manifest is stored and shown"
                yield Finding(path, message, hint)


def find_doubts(spec: Spec) -> Iterator[Finding]:
    """Yields a finding for each variable with a credential; no finding contains the value."""
    of_services = (((*at, "env"), service.env) for at, service in spec_parts.list_services(spec))
    for at, variables in (*spec_parts.list_environments(spec), *of_services):
        for name, value in variables.items():
            if (
                CREDENTIAL_NAME.search(name)
                and len(value) >= CREDENTIAL_LENGTH_MIN
                and not any(character in value for character in " /")
            ):
                path = (*at, name)
                message = " holds what looks like a credential"
                hint = "put it into a Secret and name that in `secrets`"
                yield Finding(path, message, hint, Severity.DOUBT, at_key=True)
