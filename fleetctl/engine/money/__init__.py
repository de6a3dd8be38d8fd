"""Budgets, reservations and the ledger while work runs."""
