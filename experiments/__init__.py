"""The paper's tables and the comparisons beyond it: `python -m experiments.NAME`."""
