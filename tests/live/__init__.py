"""The suite of all providers against the real services. Run by `make live-modal`,
`make live-daytona` and `make live-kubernetes`; never by the tests, which run the same code against
emulators.
"""
