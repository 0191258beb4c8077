"""The evaluation loop, metrics, configurations and searches."""
