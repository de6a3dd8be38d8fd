"""Plots of past work: the content (charts), and the formats (terminal, svg, page, png).

Data flows one way: gather reads the store, charts and curves choose the content of a plot, and the
writers only turn that into characters or shapes. Loaded by `fleetctl plot` alone.
"""
