"""What a backup changes on a server for a while, written down, and how it is put back.

Knows: what `recover` needs of each. When it is changed and for how long is told in `backup.preflush` and
`backup.replicas`.
"""

import json
from collections.abc import Callable, Mapping

from backupd.mysql import Applier, Flusher
from backupd.vocabulary.records import Holding, HoldingKind


def flush_settings_holding(host: str, flusher: Flusher) -> Holding:
    """What `recover` needs to put this host's settings back.

    Raises:
        ServerError: the server does not report them.
    """
    return Holding(HoldingKind.FLUSH_SETTINGS, host, {"host": host, **flusher.settings()})


def put_back(holding: Holding, flusher: Callable[[str], Flusher]) -> None:
    """The settings of such a holding are what they were; `flusher` is asked for the one of its host.

    Raises:
        ServerError: they could not be restored.
    """
    flusher(holding.detail["host"]).put_back(holding.detail)


def applier_holding(host: str, channels: tuple[str, ...], server: Mapping[str, str]) -> Holding:
    """What `recover` needs to start these channels of this server of the host again, and no other."""
    return Holding(HoldingKind.APPLIER, host, {"host": host, "channels": json.dumps(channels), **server})


def start_again(holding: Holding, applier: Callable[[str], Applier]) -> None:
    """The channels of such a holding run; `applier` is asked for the one of its host.

    Raises:
        ServerError: at least one does not, or another server answers.
    """
    applier(holding.detail["host"]).start(json.loads(holding.detail["channels"]), of=holding.detail)
