"""Fixtures that more than one file here uses: the Daytona emulator of a module, and of a test."""

from __future__ import annotations

from tests.servers.daytona_driving import emulator, server

__all__ = ["emulator", "server"]
