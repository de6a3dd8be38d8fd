"""Pictures of what ran: what is drawn (charts), and the ways to draw it (terminal, svg, page, png).

Data flows one way: gather reads the store, charts and curves decide what a picture shows, and the
ways to draw only turn that into characters or shapes. Loaded by `fleetctl plot` alone.
"""
