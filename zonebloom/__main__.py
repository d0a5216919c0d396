"""`python -m zonebloom`: the command."""

from zonebloom.cli import main

if __name__ == "__main__":
    main()
