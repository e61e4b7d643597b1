"""How uvicorn serves the application: the one place for its settings, whoever runs it."""

import uvicorn
from starlette.types import ASGIApp

LONGEST_HEAD = 1_200_000  # bytes: an address of a megabyte is read, so that it can be refused with a sentence
CONNECTIONS = 64  # at a time; more are told to come back
LAST_WORD_SECONDS = 1  # of what is being answered when the server is to end


def settings(application: ASGIApp, *, port: int = 0) -> uvicorn.Config:
    """Nothing but HTTP/1.1, from whoever connects: no header of a proxy is believed, and nothing is logged but faults.

    On this machine's own address, at a free port unless one is named; or on the sockets that the server is given.
    """
    return uvicorn.Config(
        application,
        host="127.0.0.1",
        port=port,
        loop="asyncio",
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=LONGEST_HEAD,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=LAST_WORD_SECONDS,
    )
