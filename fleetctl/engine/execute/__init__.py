"""Calls providers: carries out the actions in the store, and ends orphans."""
