"""Holds the one connection of an account to Daytona: SDK, credentials, errors and pacing.

`DaytonaConnection` imports the SDK in a thread at the first call that needs it, and connects again
when the account's key changes. `daytona_credentials.py` looks for the key where the SDK does; the
server never comes from a file of the working directory. `retryable_call` in `daytona_errors.py`
gives a call our deadline, turns its error into Refused or Unavailable, and holds back calls of its
kind after a 429. All SDK names come through `sdk.py`, and no key is ever printed.
"""
