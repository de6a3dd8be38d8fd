"""Protocol emulators on loopback: what the real SDKs talk to when there is no account."""
