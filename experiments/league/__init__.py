"""The league: every model on many real graphs, on the same splits and in the same orders."""
