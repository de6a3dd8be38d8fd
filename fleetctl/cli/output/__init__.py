"""Formats of output: screen, grid, CSV, Parquet, documents and templates."""
