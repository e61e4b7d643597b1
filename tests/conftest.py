"""What holds for every test: a property is judged by what it finds, never by how fast a busy machine looked for it."""

from hypothesis import HealthCheck, settings

settings.register_profile("backupd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("backupd")
