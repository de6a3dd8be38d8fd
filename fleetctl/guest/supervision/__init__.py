"""What every supervisor of a run needs: its processes, and whether it still gets on."""
