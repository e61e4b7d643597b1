"""The keyring of a scratch server: a copy of the live one's file, which it may write as it likes.

Knows: MySQL's `component_keyring_file`. Refuses to know any other component, and the keys.

A server writes its keyring file anew when it starts, in place, even where the component is set to be read-only (seen
on 9.7.4 by its system calls): of the live file it must not know. The component finds its configuration in the folder of
the plugins, and that the server loads it is said by `mysqld.my` beside the program, which is this host's affair.
"""

import json
import shutil
from pathlib import Path

from backupd.errors import ServerError
from backupd.model import ServerFacts
from backupd.mysql.facts import KEYRING_COMPONENT, key_files

_KNOWN = "component_keyring_file"


def keyring_options(facts: ServerFacts, folder: Path) -> tuple[str, ...]:
    """What makes the server use a copy of the recorded keyring file. The folder has it, and holds a key from now on.

    Nothing for a server that had no keyring component.

    Raises:
        ServerError: it had a component that is not known here.
    """
    component = facts.settings.get(KEYRING_COMPONENT)
    if component is None:
        return ()
    if component != _KNOWN:
        raise ServerError(
            f"the server's keys are kept by {component}, which a drill cannot give to a second server",
            hint=f"backupd knows {_KNOWN}; drill this backup by hand on a machine that has the keys",
        )
    (file,) = key_files(facts)
    plugins = folder / "plugins"
    plugins.mkdir(mode=0o700)
    copy = plugins / "keyring"
    copy.touch(mode=0o600)
    shutil.copyfile(file, copy)
    (plugins / f"{_KNOWN}.cnf").write_text(json.dumps({"path": str(copy), "read_only": False}))
    libraries = facts.settings.get("plugin_libraries", "").split(",")
    for library in filter(None, (f"{_KNOWN}.so", *libraries)):
        (plugins / library).symlink_to(Path(facts.settings["plugin_dir"]) / library)
    return (f"--plugin-dir={plugins}",)
