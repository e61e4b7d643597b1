"""The server writes its dirty pages before the lock is asked for; its settings are restored, whatever happens.

Knows: what is written down before a setting is touched, and until when the setting stays so.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backupd.catalogue import RunJournal
from backupd.host.holdings import Claim, Releases, held
from backupd.mysql import Flusher
from backupd.operations.findings import ok, refused
from backupd.operations.server_holdings import flush_settings_holding
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.records import Finding, Phase

log = logging.getLogger(__name__)


@contextmanager
def dirty_pages_flushed(
    flusher: Flusher | None,
    host: str,
    run: RunJournal,
    releases: Releases,
    *,
    begun: Callable[[], None] = lambda: None,
) -> Iterator[Claim | None]:
    """Few pages are dirty when the block begins, and the server goes on writing them until it ends.

    Then its settings are what they were. Where they cannot be restored their row stays for `backupd recover`, and the
    run needs attention, as with every holding; so does it where the server could not be told. With no flusher nothing
    is touched, and nothing claimed.

    Raises:
        ServerError: the server does not report its settings.
    """
    if flusher is None:
        yield None
        return
    begun()
    with held(run, flush_settings_holding(host, flusher), releases) as claim:
        try:
            with run.phase(Phase.PREFLUSH):
                found = flusher.flush()
        except ServerError as error:
            run.attention(f"dirty pages were not flushed before the lock: {error.message}")
        else:
            run.preflush(found)
            log.info(
                "preflush: %d dirty pages, %d after %.1f s (%s)",
                found.pages_before,
                found.pages_after,
                found.seconds,
                found.ended,
            )
        yield claim


def examine(flusher: Flusher | None) -> Iterator[Finding]:
    """Whether what is to be restored can be read. What may set it is among the grants."""
    if flusher is None:
        return
    try:
        flusher.settings()
    except ServerError as error:
        yield refused("preflush", error)
    else:
        yield ok("preflush", "the server flushes its dirty pages before the lock; its settings are restored")
