"""How uvicorn serves the application: the one place for its settings, whoever runs it."""

import uvicorn
from starlette.types import ASGIApp

from backupd.service.web.connections import LONGEST_HEAD, PatientProtocol

LAST_WORD_SECONDS = 1  # of what is being answered when the server is to end
_BACKLOG = 128  # that wait to be accepted, and that are accepted at a time


def settings(application: ASGIApp, *, port: int = 0) -> uvicorn.Config:
    """Nothing but HTTP/1.1, from whoever connects: no header of a proxy is believed, and nothing is logged but faults.

    On this machine's own address, at a free port unless one is named; or on the sockets that the server is given.
    """
    return uvicorn.Config(
        application,
        host="127.0.0.1",
        port=port,
        loop="asyncio",
        http=PatientProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        h11_max_incomplete_event_size=LONGEST_HEAD,
        timeout_graceful_shutdown=LAST_WORD_SECONDS,
    )
