"""Tables, sums and pictures of what has run: results, query, cost, top, plot, report."""
