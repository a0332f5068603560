"""The command line as ``python -m labelwise``."""

from labelwise_command import main

if __name__ == "__main__":
    main()
