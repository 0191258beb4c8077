"""What it costs, as ratios from one run: `python -m benchmarks.NAME --json`."""
