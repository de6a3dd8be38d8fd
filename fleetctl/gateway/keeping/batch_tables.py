"""The tables of batches that a server works on, in the ledger's own file: the hold of a row and its
membership in a batch are one transaction.
"""

BATCHES = """
create table if not exists batches (tag text primary key, namespace text, endpoint text, uid text,
  model text, server text, id text, created_at_s real, total integer) without rowid;
create table if not exists batch_rows (run text, number text, tag text, namespace text,
  endpoint text, tree text, uid text, calls integer, worst_in integer, worst_out integer,
  worst_usd real, most integer, in_usd real, out_usd real,
  primary key (run, number)) without rowid;
create index if not exists batch_rows_tag on batch_rows (tag);
"""
