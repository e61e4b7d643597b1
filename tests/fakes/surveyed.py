"""A host that a survey looks at: a recorded report of LVM's, and made-up answers of the kernel, servers, catalogue."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backupd.config import JobConfig
from backupd.lvm.fullreport import parse_landscape
from backupd.operations.measure.volume_survey import Sources, survey
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.extents import Landscape, Survey, Use, UseKind
from backupd.vocabulary.volumes import DeviceNumber, MountPoint
from tests.fakes.target import MACHINE

DATA = Path(__file__).parent.parent / "data" / "lvm"
DATADIR = MountPoint(Path("/srv/mysql"), DeviceNumber(254, 0), "xfs")  # `data` of the recordings


def recorded(state: str) -> Landscape:
    return parse_landscape((DATA / f"full_{state}.json").read_text())


@dataclass
class SurveyedHost:
    """Whom `survey` asks; a host without an answer has a server that does not."""

    state: str
    answers: Mapping[str, MountPoint | Exception] = field(default_factory=dict)
    last_volumes: Mapping[str, str] = field(default_factory=dict)
    uses: Mapping[DeviceNumber, tuple[Use, ...]] = field(
        default_factory=lambda: {DATADIR.device: (Use(UseKind.MOUNT, "/srv/mysql", "xfs"),)}
    )
    asked: list[str] = field(default_factory=list)  # jobs whose last volume was asked for

    @property
    def sources(self) -> Sources:
        return Sources(lambda: recorded(self.state), self._uses, self._datadir, self._last_volume, MACHINE)

    def survey(self, *jobs: JobConfig) -> Survey:
        """With the hosts of these jobs, and those that have answers."""
        hosts = tuple(dict.fromkeys((*self.answers, *(job.host for job in jobs))))
        return survey(hosts, jobs, self.sources)

    def _uses(self) -> Callable[[DeviceNumber], tuple[Use, ...]]:
        return lambda device: self.uses.get(device, ())

    def _datadir(self, host: str) -> MountPoint:
        answer = self.answers.get(host, ServerError(f"{host} does not answer"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _last_volume(self, job: str) -> str | None:
        self.asked.append(job)
        return self.last_volumes.get(job)
