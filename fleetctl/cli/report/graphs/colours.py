"""The colours of states in drawings: (inside, line), with dark text readable on each."""

from __future__ import annotations

COLOURS = {
    "Succeeded": ("#d3f2d9", "#2e8540"),
    "Ready": ("#d3f2d9", "#2e8540"),
    "Running": ("#d6e8fb", "#1f6fbf"),
    "Failed": ("#fbd9d7", "#c0392b"),
    "Missing": ("#fbd9d7", "#c0392b"),
    "Pending": ("#fdf0cd", "#b7860b"),
    "Suspended": ("#fdf0cd", "#b7860b"),
}
OTHER = ("#eeeeee", "#777777")
