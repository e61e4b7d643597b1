"""Whose restored files are on this host: owners come back as numbers, which elsewhere may be nobody's or another's.

Knows: which accounts servers run under, as Debian, RHEL and the makers' packages create them.
"""

import pwd
import shlex
from pathlib import Path

_SERVERS = ("mysql", "mariadb")


def owner_in_words(datadir: Path, uid: int) -> str:
    """SQL's comment for a person where the files are not a server's account's on this host; else nothing."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        whose = f"user {uid:d}, whom this host does not have"
    else:
        if name in _SERVERS:
            return ""
        whose = f"{name} on this host (user {uid:d})"
    give = f"chown --recursive --no-dereference mysql: {shlex.quote(str(datadir))}"
    return (
        f"-- Its files belong to {whose}. For a server that runs as mysql, before it starts, in a shell:\n--   {give}\n"
    )


def restored_owner(datadir: Path, *, seen_as: Path | None = None) -> str:
    """The same of what was restored, and is `seen_as` that by a person; nothing where it is not there: a manifest may
    name what its archive lacks.
    """
    try:
        uid = datadir.lstat().st_uid
    except OSError:
        return ""
    return owner_in_words(seen_as or datadir, uid)
