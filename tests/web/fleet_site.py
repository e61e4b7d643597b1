"""The pages of a fleet behind a real socket, over records of some weeks, or whatever a test has put there."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from backupd.fleet.records import Records
from backupd.service.fleet.site import FleetSite
from backupd.service.fleet.web.application import fleet_application
from tests.fleet.many_nights import MadeFleet
from tests.web.conftest import TOKEN, served


def site_of(made: MadeFleet, records: Records) -> FleetSite:
    """As its control host sees it."""
    return FleetSite(records, made.shape, lambda: made.now, own_control=("control1", 4711))


@contextmanager
def asking(site: FleetSite) -> Iterator[httpx.Client]:
    """What asks as somebody who knows the token."""
    with (
        served(fleet_application(site, token=TOKEN)) as url,
        httpx.Client(base_url=url, timeout=30, auth=("anybody", TOKEN.encode())) as client,
    ):
        yield client
