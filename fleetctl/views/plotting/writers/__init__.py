"""Turns charts into a file (PNG, SVG, an HTML page) or into lines for the terminal.

A writer gets Chart objects of charts.py, which hold the whole content; it maps numbers to shapes or
characters by scales.py, and never reads the store. chart_files.py picks the writer by the file's
suffix and loads that one alone: only png.py needs matplotlib. `fleetctl plot` calls terminal.py
itself. In the terminal the best trial has a mark of its own, and in a page each trial is in a
table, so that a chart can be read without colours.
"""
