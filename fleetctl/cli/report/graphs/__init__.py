"""Drawings of what depends on what: for terminals, as SVG and as mermaid."""
