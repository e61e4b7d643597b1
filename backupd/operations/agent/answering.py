"""One request, and the answer to it, whatever was asked: every refusal is an answer too.

Knows: the closed list of what is done for a control host. Of what comes in nothing becomes a path, an option or a
statement before `agent_protocol` has checked it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from backupd import __version__
from backupd.catalogue.store import Catalogue
from backupd.config import Configuration
from backupd.operations.agent.host_description import describe
from backupd.operations.agent.starting import RunLauncher, cancel, start
from backupd.operations.agent.states import result_of, state_of
from backupd.policy import agent_protocol as protocol
from backupd.policy.agent_protocol import Answer, Ask, Request
from backupd.vocabulary.errors import BackupdError, CatalogueError
from backupd.vocabulary.fleet import StartOrder


@dataclass(frozen=True, slots=True)
class AgentSurroundings:
    """What an agent answers with; nothing is opened before it has a sound request."""

    configuration: Callable[[], Configuration]  # raises ConfigurationError
    catalogue: Callable[[Configuration], AbstractContextManager[Catalogue]]  # this machine's own; raises Refused
    launcher: Callable[[Configuration], RunLauncher]


def answered(text: bytes, given: AgentSurroundings) -> bytes:
    """The document that answers this request of a stranger's."""
    try:
        request = protocol.parse_request(text, version=__version__)
        return protocol.answer_text(_answer(request, given), version=__version__)
    except BackupdError as error:
        return protocol.error_text(error, version=__version__)


def _answer(request: Request, given: AgentSurroundings) -> Answer:
    configuration = given.configuration()
    with given.catalogue(configuration) as catalogue:
        _remember_contact(request, configuration, catalogue)
        match request.ask:
            case Ask.DESCRIBE:
                return describe(configuration, catalogue)
            case Ask.START:
                order = StartOrder(request.job, request.run_id, request.max_rate)
                return start(configuration, catalogue, order, given.launcher(configuration))
            case Ask.STATUS:
                return state_of(configuration, catalogue, request.run_id)
            case Ask.CANCEL:
                return cancel(configuration, catalogue, request.run_id)
            case Ask.RESULT:
                return protocol.thinned(result_of(configuration, catalogue, request.run_id))


def _remember_contact(request: Request, configuration: Configuration, catalogue: Catalogue) -> None:
    """Who makes a job's backups is there. Whoever only looks, or ends a run, says nothing of the next one."""
    sees_to = (request.job,) if request.ask is Ask.START else request.sees_to
    jobs = [job for job in sees_to if job in configuration.jobs]
    with suppress(CatalogueError):  # a full disk hides no run's end; what must be written fails when its turn comes
        catalogue.control_host_asked(jobs, at=datetime.now(UTC), backupd=request.backupd)
