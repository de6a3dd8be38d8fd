"""Prices of providers: dated tables, and the arithmetic from a template's resources to a price.

The tables are data files beside this one; a provider with an account may replace them with live
rates. An unknown price is None, never zero.
"""
