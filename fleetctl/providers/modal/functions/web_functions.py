"""Functions that answer HTTP: the web function of an app, and the order for its container.

Anyone with the URL of a web function can call it. So Modal does not reach the server itself but
fleetctl_server.py before it, which lets through only requests with the key of this app. Tokens of
Modal's own (`requires_proxy_auth`) are made on its site alone, by hand and for a whole workspace.

Called by deployments.py.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fleetctl.guest import supervision
from fleetctl.providers.modal.assets import modal_source

if TYPE_CHECKING:
    from fleetctl.providers.contract.endpoint_access import ServerOrder
    from fleetctl.specs.blocks.template import Template

SERVER = "fleetctl_server"
SERVER_FILE = Path(supervision.__path__[0]) / f"{SERVER}.py"
ORDER = "FLEETCTL_SERVER"  # variable that holds it
# Its own process, and the report that the server did not become ready, come after its time limit.
STARTUP_SLACK_S = 30.0
PORT_MAX = 65_535


def load_shipped(name: str, file: Path) -> ModuleType:
    """A file as a module without a package: so the SDK ships this one file, and the Python of a
    container need not be ours.
    """
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


def decorator_options(server: ServerOrder) -> Any:
    """Returns the arguments of `app.function`."""
    import modal

    listen = _listen_port(server)
    startup_s = startup_s_of(server)
    body = modal.web_server(listen, startup_timeout=startup_s)(
        load_shipped(SERVER, SERVER_FILE).run
    )
    return modal.concurrent(max_inputs=server.concurrency)(body)


def startup_s_of(server: ServerOrder) -> int:
    return math.ceil(server.startup_s + STARTUP_SLACK_S)


def server_order(
    server: ServerOrder,
    template: Template,
    commit: str | None,
    key: str,
) -> str:
    """Returns the order that fleetctl_server.py reads."""
    setup, directory = modal_source.setup_commands(template, commit)
    fields = {
        "key": key,
        "host": "0.0.0.0",  # noqa: S104 - Modal asks by the container's outer address
        "listen": _listen_port(server),
        "port": server.port,
        "argv": list(server.command),
        "ready": server.ready,
        "startup_s": server.startup_s,
        "idle_s": 0,
        "setup": setup,
        "workdir": directory,
        "env": dict(template.env),
    }
    return json.dumps(fields)


def _listen_port(server: ServerOrder) -> int:
    """Beside the server's own port."""
    if server.port < PORT_MAX:
        return server.port + 1
    return server.port - 1
