"""Drawings of dependencies: for terminals, as SVG and as mermaid."""
