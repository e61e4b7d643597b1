"""Which profile of AppArmor binds a program on this host, and where a person allows it more.

Knows: how the kernel lists the profiles that are loaded, one a line, "NAME (MODE)"; that a profile is called like the
program's path or its name; where a host's own lines belong. Only root can read the list. Refuses to judge what a
profile allows: that a file was denied, the program itself has said.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROFILES = Path("/sys/kernel/security/apparmor/profiles")

_ENFORCED = frozenset({"enforce)", "kill)"})


@dataclass(frozen=True, slots=True)
class EnforcedProfile:
    """One that this program is bound by."""

    name: str
    program: Path

    @property
    def own_lines_in(self) -> Path:
        """The file that a host's own lines belong in; a package's update leaves it alone."""
        return Path("/etc/apparmor.d/local", self._file)

    def hint(self, folders: Sequence[Path]) -> str:
        """What a person does so that the program may read and write what is in these folders."""
        lines = " ".join(f'"{folder}/" r, "{folder}/**" rwk,' for folder in folders)
        return f"add to {self.own_lines_in}: {lines} then apparmor_parser -r /etc/apparmor.d/{self._file}"

    @property
    def _file(self) -> str:
        return str(self.program).strip("/").replace("/", ".")


def enforced_profile(program: Path) -> EnforcedProfile | None:
    """The profile of this program that is enforced here; None: there is none, or who asks may not know."""
    with suppress(OSError):
        for line in PROFILES.read_text(errors="replace").splitlines():
            name, _, mode = line.rpartition(" (")
            if mode in _ENFORCED and name in (str(program), str(program.resolve()), program.name):
                return EnforcedProfile(name, program)
    return None
