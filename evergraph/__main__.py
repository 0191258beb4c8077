"""`python -m evergraph` is the same as `evergraph`."""

from evergraph.cli import main

if __name__ == "__main__":
    main()
