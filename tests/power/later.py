"""`python -m tests.power.later COMMAND…`: backupd as if it were typed some minutes later.

Knows: that backupd goes by nothing here but the clock since the boot. What a run from before a boot had not finished
is removed two minutes after the first look, in case the machine is a clone and its original at work.
"""

import time

_MINUTES = 3
_now = time.monotonic


def _later() -> float:
    return _now() + 60 * _MINUTES


if __name__ == "__main__":
    time.monotonic = _later
    from backupd.cli.main import main

    main()
