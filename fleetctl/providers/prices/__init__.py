"""What providers charge: dated tables, and the arithmetic from a template's resources to a price.

The tables are data files beside this one; a provider with an account may put live rates in their
place. An unknown price is None, never zero.
"""
