"""All numba code of the package."""
