"""Where data, models and learning meet."""
