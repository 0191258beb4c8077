"""`python -m evergraph` is the same as `evergraph`."""

from evergraph.cli import app

if __name__ == "__main__":
    app()
