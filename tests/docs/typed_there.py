"""Types command lines in a machine of the lab: `python -m tests.docs.typed_there LINE…`, which `examples` starts."""

import subprocess
import sys


def main(lines: list[str]) -> int:
    """The status of the first that ends neither well nor with attention (3), else 0."""
    for line in lines:
        sys.stdout.write(f"\n$ {line}\n")
        sys.stdout.flush()
        status = subprocess.run(line.split(), check=False, stderr=subprocess.STDOUT).returncode
        if status not in (0, 3):
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
