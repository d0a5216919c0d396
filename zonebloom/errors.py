"""Every exception that zonebloom raises: the public name of `zonebloom.ground.errors`."""

from zonebloom.ground.errors import *  # noqa: F403 - one list of them
