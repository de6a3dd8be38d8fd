"""Writes data in the format that the user chose: screen, grid, CSV, Parquet, documents, templates.

A verb gives its rows in several forms (OutputRows in output_rows.py), each a function; only the
form that `-o` needs is computed. documents.py writes JSON, YAML, jsonpath and custom columns;
select.py filters and sorts the things of a list before that.
All text leaves through Screen (screen.py): stdout has data, stderr messages. Text from users must
be escaped before it gets there. rich is loaded by live.py alone, pyarrow by parquet.py alone.
"""
