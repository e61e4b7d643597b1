"""What the service tells of made-up weeks: what is due, what they cost, the digest; and a failure at three."""

import re

from backupd.notifications.words import body, title
from backupd.vocabulary.errors import LockNotGranted
from tests.contract.peers import MailPeer, mail_server, words_of
from tests.docs.stage import Host, Stage, host
from tests.story.test_digest import sample_digest
from tests.story.test_failure_at_three import fail, settings, started
from tests.web.sample import NOW, sample_site


def play(stage: Stage) -> None:
    with host(stage) as db1:
        _weeks(db1)
    with host(stage) as db1, mail_server(MailPeer()) as peer:
        db1.runs("run", "nightly", "--run-id", "good")
        db1.types("status", "nightly", "--nagios")
        db1.configure(settings(peer.port))
        with db1.world.catalogue() as catalogue:
            started(catalogue, "r1")
        fail(db1.world, LockNotGranted("the lock was not granted in 10 tries", hint="wait"))
        db1.runs("run", "nightly", "--run-id", "r1", status=6)
        (mail,) = peer.mails
        stage.shown("the mail of a failure", f"Subject: {mail['Subject']}\n\n{words_of(mail)}")


def _weeks(db1: Host) -> None:
    folder = db1.world.base / "sample"
    folder.mkdir()
    with sample_site(folder):
        configuration = folder / "backupd.toml"
        for words in (
            ("schedule", "list"),
            ("report", "sample-shop", "--since", "2026-10-01", "--until", f"{NOW:%Y-%m-%dT%H:%M}"),
        ):
            ended = db1.terminal.run(*words, configuration=configuration)
            assert ended.status == 0, ended.stdout
            db1.stage.typed(" ".join(["backupd", *words]), ended.stdout)
    told = db1.world.base / "told"
    told.mkdir()
    db1.stage.call(told, "/srv")
    notice = sample_digest(told, well=False)
    text = re.sub(r"since .{16} UTC  until", "since 2026-11-19 09:00 UTC  until", body(notice))
    db1.stage.shown("the digest", f"Subject: {title(notice)}\n\n{text}")
