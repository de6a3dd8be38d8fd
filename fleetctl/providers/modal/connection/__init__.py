"""Connects to Modal: one client of the SDK for each account, with its errors, rates and settings.

modal_connection.py connects at the first call that needs it, and refuses a workspace or an
environment other than the one that holds the store's objects: every sandbox would seem gone there.
It connects again when the account or its token changes; present users keep the old client.
modal_credentials.py reads the token for each connection and never shows it. retryable_call
(modal_errors.py) gives a call its deadline and translates the SDK's errors into fleetctl's.
modal_rates.py fetches the account's prices in the background, so that no price waits for Modal.
"""
