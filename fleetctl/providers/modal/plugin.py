"""Where the parts of provider `modal` are. Read by the wiring, which imports them when needed."""

from __future__ import annotations

from fleetctl.providers.contract.plugin import Plugin, Server

PLUGIN = Plugin(
    backend="fleetctl.providers.modal.provider:ModalProvider",
    volume_files="fleetctl.providers.modal.assets.volume_files:ModalFiles",
    orphans="fleetctl.providers.modal.orphans:ModalOrphans",
    exec="fleetctl.providers.modal.runs.exec:ModalEntering",
    check="fleetctl.providers.modal.check:check",
    session="fleetctl.providers.modal.interpreter.session:open_session",
    session_end="fleetctl.providers.modal.interpreter.session:end_session",
    sdk="modal",
    server=Server("MODAL_TOKEN_ID", "https://api.modal.com", "MODAL_SERVER_URL"),
)
