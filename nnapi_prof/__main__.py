"""``python -m nnapi_prof`` is ``nnapi-prof``."""

from nnapi_prof.cli import main

if __name__ == "__main__":
    main()
