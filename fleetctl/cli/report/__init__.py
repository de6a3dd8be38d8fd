"""Makes tables, sums and drawings of past and present work: results, query, cost, top, plot, graph.

cost, top and query run SQL over the views of the store (open_asking in views/spending.py), read
only and within bounds. results, plot and graph read objects and runs through open_reading
(views/store_reading.py); report.py reads both and writes one HTML file. Most figures are computed
in fleetctl/views; columns and formats are chosen here. graph_drawings.py draws and reads no store.
Unknown costs are counted apart, never as zero. No verb here needs a controller.
"""
