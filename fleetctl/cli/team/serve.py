"""`fleetctl serve`: the API of a team, a process of its own beside the controller."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import FleetctlError, UsageError
from fleetctl.common.install import install_hint
from fleetctl.common.state_paths import find_state_dir

if TYPE_CHECKING:
    from fleetctl.server.callers import TokenIssuer
    from fleetctl.server.oidc import OidcConfig

PAGE = """\
[--listen ADDRESS:PORT] [--tls-cert FILE --tls-key FILE | --behind-proxy]
       [--name HOST ...] [--webhook-secret FILE] [--oidc FILE]

Serve the API for a page, scripts, and `fleetctl --server`. It reads the store and sends
changes to the controller, which it starts where none runs. On the loopback address you
need no token; every other address needs TLS, or a proxy that does it, and a token from
everybody: of `fleetctl token create`, or of the issuer in the file of --oidc. Its first
line of output is its address.

examples:
  fleetctl serve
  fleetctl serve --listen 127.0.0.1:8123
  fleetctl serve --listen 0.0.0.0:8443 --name fleet.example.org --tls-cert c.pem --tls-key k.pem
  fleetctl serve --behind-proxy --name fleet.example.org --webhook-secret /etc/fleetctl/webhook
  fleetctl serve --behind-proxy --name fleet.example.org --oidc /etc/fleetctl/oidc.yaml

exit codes:
  0 ended in order, 1 failed, 2 wrong usage, 3 an address that needs TLS
"""
DEFAULT_LISTEN = "127.0.0.1:8123"
PORT_MAX = 65535


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument(
        "--listen", default=DEFAULT_LISTEN, metavar="ADDRESS:PORT",
        help=f"where to listen (default {DEFAULT_LISTEN}); port 0: a free one",
    )  # fmt: skip
    add_address_flags(made)
    made.add_argument(
        "--webhook-secret", default="", metavar="FILE",
        help="take pushes of GitHub and GitLab that know the secret in FILE: Sources look at once",
    )  # fmt: skip
    add_oidc_flag(made)
    return made


def add_address_flags(made: Parser) -> None:
    """Adds the flags on how a server is reached, beside the address itself."""
    made.add_argument(
        "--name", action="append", default=[], metavar="HOST", dest="names",
        help="a name under which it is reached; requests for others are refused; repeatable",
    )  # fmt: skip
    made.add_argument("--tls-cert", default="", metavar="FILE", help="its certificate, PEM")
    made.add_argument("--tls-key", default="", metavar="FILE", help="the key of that, PEM")
    made.add_argument(
        "--behind-proxy", action="store_true",
        help="a proxy in front does TLS and sends X-Forwarded-For; everybody needs a token",
    )  # fmt: skip


def add_oidc_flag(made: Parser) -> None:
    """Adds the flag with the file on an issuer of tokens."""
    made.add_argument(
        "--oidc", default="", metavar="FILE",
        help="take tokens of the OpenID Connect issuer in FILE, by its rules for roles",
    )  # fmt: skip


def check_tls_flags(args: Namespace) -> None:
    """Raises UsageError where the flags of add_address_flags contradict each other."""
    if bool(args.tls_cert) != bool(args.tls_key):
        raise UsageError("a certificate and its key go together", hint="--tls-cert and --tls-key")
    if args.tls_cert and args.behind_proxy:
        raise UsageError("either the proxy does TLS, or the server", hint="leave one of them out")


def run(args: Namespace, screen: Screen) -> int:
    host, port = split_address(args.listen, f"--listen {DEFAULT_LISTEN}")
    check_tls_flags(args)
    try:
        from fleetctl.server.api_server import serve_api
        from fleetctl.server.callers import ListenAddress
        from fleetctl.server.changes import read_webhook_secret
    except ModuleNotFoundError as error:
        raise FleetctlError(
            f"the server needs the package `{error.name}`", hint=install_hint("server")
        ) from None

    def say(address: str) -> None:
        screen.data(address)
        screen.flush()

    return serve_api(
        find_state_dir(),
        ListenAddress(host, port, args.behind_proxy, bool(args.tls_cert), tuple(args.names)),
        cert=args.tls_cert,
        key=args.tls_key,
        webhook_secret=read_webhook_secret(args.webhook_secret),
        issued=_make_issuer(args.oidc),
        say=say,
    )


def _make_issuer(path: str) -> TokenIssuer | None:
    """Returns the check of an issuer's tokens; None without a file."""
    config = read_oidc_file(path)
    if config is None:
        return None
    from fleetctl.server.oidc import OidcCheck

    return OidcCheck(config)


def read_oidc_file(path: str) -> OidcConfig | None:
    """Returns the configuration in the file of --oidc; None without one. Its models and
    cryptography take longer to load than all else of the server."""
    if not path:
        return None
    try:
        from fleetctl.server.oidc import read_oidc_config
    except ModuleNotFoundError as error:
        raise FleetctlError(
            f"--oidc needs the package `{error.name}`", hint=install_hint("server")
        ) from None
    return read_oidc_config(path)


def split_address(text: str, example: str) -> tuple[str, int]:
    """Returns the host and the port in the value of a flag. example: the flag with a good value.
    Raises UsageError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    known = port.isascii() and port.isdigit() and int(port) <= PORT_MAX
    if not colon or not host or not known:
        raise UsageError(
            f"{example.partition(' ')[0]} is `{text}`; it must be an address and a port",
            hint=example,
        )
    return host, int(port)
