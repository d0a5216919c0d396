"""The command, as `zonebloom` and as `python -m zonebloom`: Ctrl-C is one line and exit status 130 from here on.

An exception would not do while modules are loaded: imports catch it, or print a traceback.
"""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

_STOPPED = 130
"""Exit status of a shell for the signal INT."""


def main() -> NoReturn:
    """Run the command as all that this process does."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # as nohup sets it
        signal.signal(signal.SIGINT, _stop)
    try:
        from zonebloom.cli import main as command  # noqa: PLC0415 - what takes long to load
    except ImportError as absent:
        sys.exit(f"zonebloom: the command needs what zonebloom depends on ({absent}); install zonebloom with that")

    try:
        signal.signal(signal.SIGINT, before)
        command()
    except KeyboardInterrupt:  # just before a command, or after it
        _stop(signal.SIGINT, None)


def _stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    os.write(2, b"zonebloom: stopped\n")
    os._exit(_STOPPED)


if __name__ == "__main__":
    main()
