"""The number of this version, for all floors; package metadata is slow to read."""

VERSION = "0.1.0"  # pyproject.toml has it too; a test holds them equal
