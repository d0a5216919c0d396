"""The version of zonebloom: of the command, of records of erasures, and of what executors must have."""

__version__ = "0.2.0"
