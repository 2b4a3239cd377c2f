"""Run the command line as `python -m secagg.cli`."""

from secagg.cli.main import main

if __name__ == "__main__":
    main()
