"""The files that lie beside a clone: the options its server needs, and what it was told about replication.

Knows: their text. Refuses to know a password, and where on its machine the new server will listen. Pure.
"""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from backupd.mysql.relocation import Relocation
from backupd.mysql.seeding import ReplicaWish, Seeded, Words, source_word
from backupd.mysql.sqltext import comment
from backupd.mysql.startup import RELAY_LOG, file_options
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Flavour, Position
from backupd.vocabulary.storage import Manifest

OPTION_FILE = "replica.cnf"
SCRUBBED_OPTION_FILE = "scrubbed.cnf"
STATEMENTS_FILE = "replica.sql"

_PROGRAM = {Flavour.MARIADB: "mariadbd", Flavour.MYSQL: "mysqld"}


def option_file(manifest: Manifest, relocation: Relocation, wanted: ReplicaWish) -> str:
    """An option file for the clone's server, to which only this machine's own options have to be added.

    `read_only` because what is written to a replica by hand stops its replication; it replicates all the same.
    It does not start to replicate by itself: a person looks at it first, and then removes that line.

    Raises:
        ServerError: the recorded server used paths that are not in the backup, or one has more than a line.
    """
    return _option_file(OPTION_FILE, manifest, relocation, list(_identity(manifest, wanted)))


def scrubbed_option_file(manifest: Manifest, relocation: Relocation) -> str:
    """The same for the server of a scrubbed copy, which replicates from nobody.

    Raises:
        ServerError: the recorded server used paths that are not in the backup, or one has more than a line.
    """
    return _option_file(SCRUBBED_OPTION_FILE, manifest, relocation, list(_not_persisted(manifest)))


def _option_file(name: str, manifest: Manifest, relocation: Relocation, own: Sequence[str]) -> str:
    program = _PROGRAM[manifest.server.flavour]
    options = [*own, *file_options(relocation, manifest.server)]
    return "\n".join(
        [
            f"# Written by `backupd clone {manifest.run_id}`: what a {manifest.server.flavour}"
            f" {'.'.join(map(str, manifest.server.version_number[:2]))} server needs to start on this folder.",
            "# Add what belongs to this machine: socket, port, bind_address, log_error, memory. For example:",
            f"#   {program} --defaults-file={relocation.folder / name} --socket=… --port=…",
            f"[{program}]",
            *(_line(option) for option in options),
            "",
        ]
    )


def statements_file(manifest: Manifest, seeded: Seeded, wanted: ReplicaWish, moment: str | None = None) -> str:
    """What the clone's server was told and what is left to tell it, in its own words.

    `moment` is that to which the copy was rolled forward, if it was.
    """
    recorded = "as recorded" if manifest.locked else "as its recovered server said"
    if moment is not None:
        recorded = f"rolled forward to {moment}"
    lines = [
        comment(f"Written by `backupd clone {manifest.run_id}`: a replica of {manifest.host}, by {wanted.following}."),
        comment(f"Position, {recorded}: {position_in_words(seeded.position)}"),
        "",
        "-- Already applied on the server in this folder:",
        *(comment(f"{statement};") for statement in seeded.applied),
        "",
        only_of_its_series(manifest),
        *_notes(seeded, wanted),
        *(f"{statement};" for statement in seeded.left),
        "",
    ]
    return "\n".join(lines)


def naming_the_source(words: Words) -> str:
    """What is left to a person where nobody has named the source."""
    word = source_word(words)
    return f"fill in {word}_HOST, {word}_PORT and {word}_USER, and add {word}_PASSWORD"


def only_of_its_series(manifest: Manifest) -> str:
    """Of which servers a copy may apply the log, as a comment; see `policy.binlog_chain`."""
    series = ".".join(map(str, manifest.server.version_number[:2]))
    return comment(
        f"Only while {manifest.host} is of series {series} or an earlier one: what a later one logs is applied without"
        " an error, and not always with the same result."
    )


def position_in_words(position: Position) -> str:
    """File, offset and GTID."""
    gtid = f", GTID {position.gtid}" if position.gtid else ""
    return f"{position.binlog_file}:{position.binlog_offset}{gtid}"


def _identity(manifest: Manifest, wanted: ReplicaWish) -> Iterator[str]:
    yield f"--server-id={wanted.server_id}"
    yield "--read-only=ON"
    yield "--skip-slave-start"  # MySQL 9.7 knows the old word too
    yield f"--relay-log={RELAY_LOG}"
    yield "--relay-log-recovery=ON"
    basename = manifest.server.binlog_basename
    if basename is not None:
        yield f"--log-bin={PurePosixPath(basename).name}"
    yield from _not_persisted(manifest)


def _not_persisted(manifest: Manifest) -> Iterator[str]:
    """What was SET PERSIST on the old server, its server_id for one, would come before the option file."""
    if manifest.server.flavour is Flavour.MYSQL:
        yield "--persisted-globals-load=OFF"


def _line(option: str) -> str:
    if not option.isprintable():  # in this file a line is an option, and a line in brackets another program's
        raise ServerError(
            (f"this cannot be written to an option file: {option!r:.80}"), hint="it has a control character"
        )
    name, equals, value = option.removeprefix("--").partition("=")
    return f"{name.replace('-', '_')}{' = ' if equals else ''}{_quoted(value)}"


def _quoted(value: str) -> str:
    """A `#` begins a comment where a value is not quoted, and a backslash is an escape everywhere."""
    if not any(character in value for character in " #\\'\""):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _notes(seeded: Seeded, wanted: ReplicaWish) -> Sequence[str]:
    word = source_word(seeded.words)
    if wanted.source is None:
        return (f"-- Left to do: {naming_the_source(seeded.words)}.",)
    kept = "mysql.slave_master_info" if seeded.words is not Words.MARIADB else "master.info, in clear text"
    if wanted.source.password is None:
        return (f"-- Left to do. No password was given; {word}_PASSWORD of CHANGE … TO sets one.",)
    return (f"-- Left to do. The password is not in this file; the server keeps it in {kept}.",)
