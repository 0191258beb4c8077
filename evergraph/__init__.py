"""Lifelong learning on graphs that never stop growing."""

__version__ = "0.1.0"
