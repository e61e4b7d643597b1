"""The daemon reads what proof hosts have found out by itself, and waits for no target that hangs."""

import os
import signal
from dataclasses import replace
from pathlib import Path

from backupd.catalogue.schema import prepare
from backupd.config import CatalogueConfig, Configuration, DirectoryConfig, PathsConfig, ServiceConfig, TargetKind
from backupd.config.proving import ProofsConfig
from backupd.service.daemon import serve
from tests.fakes.launcher import FakeLauncher
from tests.signers import signer
from tests.story.daemon_world import job
from tests.story.serving import surroundings


def readings(folder: Path, configuration: Configuration, *, asked: signal.Signals) -> dict[str, int]:
    """How often each target was read within three looks; every reading hangs. The signal comes before the second."""
    prepare(configuration.catalogue.path)
    launcher, looks = FakeLauncher(), [0]

    def hear(_status: str) -> None:
        looks[0] += 1
        os.kill(os.getpid(), signal.SIGTERM if looks[0] == 3 else asked)

    serve(configuration, surroundings(configuration, hear, launcher=launcher))
    return {target: len(begun) for target, begun in launcher.readings.items()}


def believing(folder: Path) -> Configuration:
    return Configuration(
        catalogue=CatalogueConfig(path=folder / "catalogue.sqlite"),
        paths=PathsConfig(run=folder / "run"),
        service=ServiceConfig(zone="UTC"),
        targets={"vault": DirectoryConfig(name="vault", type=TargetKind.DIRECTORY, path=folder)},
        jobs={"nightly": job("nightly")},
        proofs=ProofsConfig(signers=(signer().public,)),
    )


def test_every_target_is_read_and_one_that_hangs_keeps_the_daemon_from_nothing(tmp_path: Path) -> None:
    assert readings(tmp_path, believing(tmp_path), asked=signal.SIGHUP) == {"vault": 1}


def test_nothing_is_read_where_no_proof_host_is_believed(tmp_path: Path) -> None:
    configuration = replace(believing(tmp_path), proofs=ProofsConfig())
    assert readings(tmp_path, configuration, asked=signal.SIGHUP) == {}
