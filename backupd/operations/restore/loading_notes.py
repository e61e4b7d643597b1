"""What a person is told before tables are loaded into a running server: how, how much, what is left behind."""

from collections.abc import Iterator, Sequence

from backupd.mysql.loading_schema import LoadingPlace, LoadingServer
from backupd.mysql.table_shape import TableShape
from backupd.report import words
from backupd.vocabulary.servers import LoadingWay


def beforehand(server: LoadingServer, place: LoadingPlace, size: int, ways: Sequence[LoadingWay]) -> str:
    """Bytes, way, and what replicas have to do with it."""
    by = " and ".join(f"by {way}" for way in LoadingWay if way in ways)
    if not server.logs:
        share = "its binary log is off, so no replica receives them"
    elif not place.logged:
        share = (
            f"they do not go through its binary log, so neither its replicas ({server.replicas} connected) nor a"
            f" recovery from that log will have them"
        )
    elif server.replicas:
        share = (
            f"they go through its binary log to {words.many(server.replicas, 'connected replica')}: each writes as much"
        )
    else:
        share = "they go through its binary log, and to any replica, which writes as much"
    return (
        f"loading about {words.size(size)} (the files of the tables) into {place.host} as schema {place.schema},"
        f" {by}: {share}"
    )


def attentions(server: LoadingServer, place: LoadingPlace) -> Iterator[str]:
    """What a person should look at although the tables are loaded."""
    if server.left_out and place.logged:
        yield (
            f"the binary log of {place.host} is filtered ({server.left_out}): replicas may not receive schema"
            f" {place.schema}, and a RENAME TABLE out of it would stop them"
        )
    if server.is_replica:
        yield f"{place.host} is a replica itself: its source does not receive schema {place.schema}" + (
            ", and its binary log has transactions then that its source lacks" if server.logs and place.logged else ""
        )


def left_behind(shapes: Sequence[TableShape]) -> Iterator[str]:
    """What of the tables is not carried."""
    for shape in shapes:
        if shape.foreign_keys:
            yield f"{shape.table} is loaded without its foreign keys: {'; '.join(shape.foreign_keys)}"
        if shape.triggers:
            names = ", ".join(trigger.name for trigger in shape.triggers)
            yield f"{shape.table} is loaded without its triggers: {names}"
