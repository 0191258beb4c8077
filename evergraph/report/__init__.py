"""From results to evidence, tables and figures."""
