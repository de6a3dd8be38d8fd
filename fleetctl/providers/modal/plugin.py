"""Where each part of the provider is. Read by wiring; imports none of them."""

from __future__ import annotations

from fleetctl.providers.plugin import Plugin

PLUGIN = Plugin(
    backend="fleetctl.providers.modal.provider:ModalProvider",
    volume_files="fleetctl.providers.modal.assets.volume_files:ModalFiles",
    orphans="fleetctl.providers.modal.orphans:ModalStrays",
    exec="fleetctl.providers.modal.runs.exec:ModalEntering",
    check="fleetctl.providers.modal.check:check",
    session="fleetctl.providers.modal.interpreter.session:open_session",
)
