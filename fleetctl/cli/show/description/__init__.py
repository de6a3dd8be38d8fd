"""The parts of `describe`: lines of the spec, of assets, of money, of work."""
