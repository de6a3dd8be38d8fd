"""How answers are written: screen, grid, CSV, Parquet, documents and templates."""
