"""``python -m torchferry``: the command line."""

from torchferry.cli.main import main

if __name__ == "__main__":
    main()
