"""A service over a model folder: takes events, answers questions, learns, survives being killed."""
