"""An OpenSSH server on the loopback interface, for whoever wants a real SFTP target: tests, benches, the lab.

Knows: the least configuration with which `sshd` serves SFTP to the user who started it, by a key made for it, as root
and as anybody else. Refuses to know: what is stored there, and the host's own SSH, of which it touches nothing.

    python -m tests.servers.sshd --folder FOLDER --keys KEYS [--port PORT] [-- COMMAND...]

prints the target's configuration and serves while the command runs; without one until it is interrupted.
"""

import argparse
import os
import pwd
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from backupd.vocabulary.errors import LabError
from tests.servers.ports import free_port

_START_SECONDS = 60.0
_ADDRESS = "127.0.0.1"
_WHERE = "/usr/sbin:/usr/local/sbin:/sbin"

# UsePAM no: it wants root, and /etc/pam.d. StrictModes no: it looks at every folder above, /tmp among them.
_CONFIGURATION = """\
ListenAddress {address}:{port}
HostKey "{keys}/host_key"
AuthorizedKeysFile "{keys}/authorized_keys"
PidFile none
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
MaxSessions 100
LogLevel VERBOSE
Subsystem sftp internal-sftp
"""
_ONLY = """\
DisableForwarding yes
PermitTTY no
ForceCommand {command}
"""


@dataclass(frozen=True, slots=True)
class SshServer:
    """A server that answers, and what a client needs to be let in."""

    address: str
    port: int
    user: str
    key_file: Path
    known_hosts: Path
    log: Path
    pid: int

    def configuration(self, name: str, path: Path) -> str:
        """A table of backupd's configuration: a target of this name in this folder."""
        return (
            f'[targets.{name}]\ntype = "sftp"\naddress = "{self.address}"\nport = {self.port}\nuser = "{self.user}"\n'
            f'path = "{path}"\nkey_file = "{self.key_file}"\nknown_hosts = "{self.known_hosts}"\n'
        )


@contextmanager
def serving(
    keys: Path, *, port: int = 0, command: str = "internal-sftp", key_options: str = "", more: str = ""
) -> Iterator[SshServer]:
    """A server for the length of the block. Keys that `keys` has already are used again; port 0: any that is free.

    `command` is what every session runs, instead of OpenSSH's own SFTP server within sshd. With `key_options`, as they
    stand before a key in authorized_keys(5), nothing but these says what the key may do. `more` are lines of
    sshd_config(5).

    Raises:
        LabError: there is no sshd, or it does not start.
    """
    keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("host_key", "client_key"):
        if not (keys / name).exists():
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "backupd lab", "-f", str(keys / name))
    public_key = (keys / "client_key.pub").read_text()
    (keys / "authorized_keys").write_text(f"{key_options} {public_key}" if key_options else public_key)
    chosen = port or free_port()
    host_key = " ".join((keys / "host_key.pub").read_text().split()[:2])
    (keys / "known_hosts").write_text(f"[{_ADDRESS}]:{chosen} {host_key}\n")
    configuration = _CONFIGURATION.format(address=_ADDRESS, port=chosen, keys=keys) + more
    (keys / "sshd_config").write_text(configuration + ("" if key_options else _ONLY.format(command=command)))
    with _process(keys, chosen) as pid:
        yield SshServer(
            address=_ADDRESS,
            port=chosen,
            user=pwd.getpwuid(os.geteuid()).pw_name,
            key_file=keys / "client_key",
            known_hosts=keys / "known_hosts",
            log=keys / "log",
            pid=pid,
        )


@contextmanager
def _process(keys: Path, port: int) -> Iterator[int]:
    """sshd wants to be called by its whole path, because it starts itself again for every connection (sshd(8))."""
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # its privilege separation; Debian's unit makes it
    with (keys / "log").open("ab") as log:
        process = subprocess.Popen(
            [_program("sshd"), "-D", "-e", "-f", str(keys / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"sshd does not start: {(keys / 'log').read_text()[-2000:]}")
            time.sleep(0.02)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    """Whether an SSH server greets there."""
    try:
        with socket.create_connection((_ADDRESS, port), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _program(name: str) -> str:
    if (found := shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_WHERE}")) is None:
        raise LabError(f"there is no {name}", hint="apt-get install openssh-server, or .ci/packages check")
    return found


def _run(name: str, *arguments: str) -> None:
    done = subprocess.run([_program(name), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{name} failed: {done.stderr.strip()}")


def main(argv: Sequence[str]) -> int:
    """Serve while the command runs, and end with its status; without a command until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers.sshd", description="An SFTP target on loopback.")
    parser.add_argument("--folder", type=Path, required=True, help="where backups are to lie; made if need be")
    parser.add_argument("--keys", type=Path, required=True, help="where keys, known_hosts and the server's log go")
    parser.add_argument("--port", type=int, default=0, help="any that is free")
    parser.add_argument("--name", default="offsite", help="of the target, in the configuration that is printed")
    parser.add_argument("command", nargs="*", help="what to run meanwhile")
    asked = parser.parse_args(argv)
    asked.folder.mkdir(parents=True, exist_ok=True)
    with serving(asked.keys.absolute(), port=asked.port) as server:
        sys.stdout.write(server.configuration(asked.name, asked.folder.absolute()))
        sys.stdout.flush()
        if asked.command:
            return subprocess.run(asked.command, check=False).returncode
        threading.Event().wait()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
