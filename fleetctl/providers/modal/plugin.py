"""The plugin row of provider `modal`. Read by the wiring, which imports them when needed."""

from __future__ import annotations

from fleetctl.providers.contract.plugin import Plugin, ProviderServer

PLUGIN = Plugin(
    backend="fleetctl.providers.modal.modal_provider:ModalProvider",
    volume_files="fleetctl.providers.modal.assets.modal_volumes:ModalFiles",
    orphans="fleetctl.providers.modal.modal_orphans:ModalOrphans",
    exec="fleetctl.providers.modal.runs.modal_exec:ModalEntering",
    check="fleetctl.providers.modal.modal_check:check_modal",
    run_sessions=True,
    sdk="modal",
    server=ProviderServer("MODAL_TOKEN_ID", "https://api.modal.com", "MODAL_SERVER_URL"),
)
