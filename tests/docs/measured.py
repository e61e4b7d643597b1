"""What is typed on the lab's disks to measure them; `tests.docs.examples` starts it in a machine of the lab."""

import subprocess
import sys

_TYPED = (
    "backupd probe --volume labvg/data --chunk-sizes 4k,64k,512k",
    "backupd bench layouts --vg labvg --yes",
)


def main() -> int:
    """The status of the first command that did not end well or with attention (3), else 0."""
    for line in _TYPED:
        sys.stdout.write(f"\n$ {line}\n")
        sys.stdout.flush()
        status = subprocess.run(line.split(), check=False, stderr=subprocess.STDOUT).returncode
        if status not in (0, 3):
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
