"""Part of the pipeline."""
