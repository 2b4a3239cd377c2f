"""`python -m secagg.cli` is the command `secagg`."""

from secagg.cli.main import main

if __name__ == "__main__":
    main()
