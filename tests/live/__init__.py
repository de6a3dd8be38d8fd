"""The suite of all providers against the real services. Run by `make live-modal` and
`make live-daytona`; never by the tests, which run the same code against emulators.
"""
