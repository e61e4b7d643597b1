"""The keyring of a scratch server: a copy of the live one's file, which it may write as it likes.

Knows: MySQL's `component_keyring_file`, and the plugin `keyring_file` that it replaced after 8.0.

A server writes its keyring file anew when it starts, in place, even where the component is set to be read-only (seen
on 9.7.4 by its system calls): of the live file it must not know. The component finds its configuration in the folder of
the plugins, and that the server loads it is said by `mysqld.my` beside the program, which is this host's affair.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from subprocess import TimeoutExpired

from backupd.host import process
from backupd.mysql.facts import KEYRING_COMPONENT, key_files
from backupd.mysql.recorded import libraries
from backupd.mysql.server_programs import ServerProgram
from backupd.vocabulary.errors import CommandError, HostExhausted, KeyUnreadable, ServerError
from backupd.vocabulary.servers import Flavour, ServerFacts

_KNOWN = "component_keyring_file"
_LARGEST = 16 << 20  # bytes of a keyring: thousands of keys have some hundred kilobytes
_SECONDS = 30.0


def require_known_keyring(facts: ServerFacts) -> None:
    """Its keys, if it has any, can be given to a second server.

    Raises:
        ServerError: it had a component that is not known here, or one without a file.
    """
    component = facts.settings.get(KEYRING_COMPONENT)
    if component not in (None, _KNOWN):
        raise ServerError(
            f"the server's keys are kept by {component}, which a drill cannot hand to a second server",
            hint=f"backupd knows {_KNOWN}; drill this backup by hand on a machine that has the keys",
        )
    if component is not None and len(key_files(facts)) != 1:
        raise ServerError(
            f"the server's keys were kept by {component}, and its file is not recorded",
            hint="drill another backup, or this one by hand",
        )


def keyring_options(facts: ServerFacts, folder: Path, program: ServerProgram, reader: Sequence[str]) -> tuple[str, ...]:
    """What makes the server use a copy of the recorded keyring file. The folder has it, and holds a key from now on.

    Nothing for a server that had none. Libraries are the local server's own. The file is read behind
    `reader`, a command's beginning that makes it run as the copy's owner: a manifest may name any file, and whoever
    may not read it does not get it in this way.

    Raises:
        ServerError: it had a component that is not known here, or its file cannot be read.
    """
    require_known_keyring(facts)
    if facts.settings.get(KEYRING_COMPONENT) is None:
        return _plugin_options(facts, folder, reader)
    (file,) = key_files(facts)
    home = plugin_folder(program)
    plugins = folder / "plugins"
    plugins.mkdir(mode=0o700)
    copy = plugins / "keyring"
    copy.touch(mode=0o600)
    _copied(file, copy, reader)
    (plugins / f"{_KNOWN}.cnf").write_text(json.dumps({"path": str(copy), "read_only": False}))
    for library in (f"{_KNOWN}.so", *libraries(facts)):
        (plugins / library).symlink_to(home / library)
    return (f"--plugin-dir={plugins}",)


def _plugin_options(facts: ServerFacts, folder: Path, reader: Sequence[str]) -> tuple[str, ...]:
    """Of 8.0's plugin `keyring_file`, by its file. It is loaded early: InnoDB needs the keys to recover."""
    if facts.flavour is not Flavour.MYSQL or not (files := key_files(facts)):
        return ()
    copy = folder / "keyring"
    copy.touch(mode=0o600)
    _copied(files[0], copy, reader)
    return ("--early-plugin-load=keyring_file.so", f"--keyring-file-data={copy}")


def plugin_folder(program: ServerProgram) -> Path:
    """Where this server program looks for its libraries.

    Raises:
        ServerError: it does not say.
        HostExhausted: this host has no room for any program.
    """
    try:
        said = process.run([*program.argv, "--verbose", "--help"], timeout_seconds=_SECONDS).stdout
    except HostExhausted:
        raise
    except CommandError as error:
        raise ServerError(f"{program.path} did not report where its plugins are: {error.message}") from error
    for line in said.splitlines():
        name, _, value = line.partition(" ")
        if name == "plugin-dir" and value.strip().startswith("/"):
            return Path(value.strip())
    raise ServerError(f"{program.path} does not report where its plugins are", hint=f"{program.path} --verbose --help")


def _copied(file: Path, to: Path, reader: Sequence[str]) -> None:
    """A key is never in our memory, and no larger file than a keyring is copied."""
    argv = [*reader, "head", "-c", str(_LARGEST), "--", str(file)]
    with to.open("wb") as copy, process.spawned(argv, stdout=copy) as reading:
        assert reading.stderr is not None
        try:
            said = reading.communicate(timeout=_SECONDS)[1]
        except TimeoutExpired:
            said = b"it does not end"
    if reading.returncode != 0:
        reason = said.decode(errors="replace").strip().rpartition(": ")[2]
        raise KeyUnreadable(
            f"the keyring {file} cannot be read as the owner of the restored files: {reason or 'no reason recorded'}",
            hint="the server's account, which owns the files, must be able to read the keys",
        )
