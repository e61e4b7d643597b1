"""Which modules are mutated, and which tests have to notice it: `make mutants` runs no others.

Knows: the decisions that a backup's worth depends on. Each of them has tests of its own, so that a mutant takes
a fraction of a second; a test that is not named here kills none.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutated:
    """What is mutated and judged together."""

    name: str
    modules: tuple[str, ...]  # files, from the root of the repository
    tests: tuple[str, ...]
    left_out: tuple[str, ...] = ()  # of the tests: such as take seconds, each of which every mutant would cost

    @property
    def all_files(self) -> Iterator[str]:
        """Those that have to be there."""
        yield from self.modules
        yield from self.tests
        yield from (test.partition("::")[0] for test in self.left_out)


MUTATED = (
    Mutated(
        "gate",
        ("backupd/policy/settle_gate.py", "backupd/policy/trend.py"),
        (
            "tests/unit/test_settle.py",
            "tests/unit/test_settle_series.py",
            "tests/unit/test_settle_words.py",
            "tests/unit/test_trend.py",
        ),
    ),
    Mutated(
        "retention",
        ("backupd/policy/retention.py", "backupd/policy/segment_retention.py"),
        (
            "tests/unit/test_retention.py",
            "tests/unit/test_roll_forward.py",
            "tests/unit/test_segment_retention.py",
        ),
    ),
    Mutated(
        "schedule",
        ("backupd/policy/timetable.py", "backupd/policy/blackouts.py"),
        ("tests/unit/test_timetable.py", "tests/unit/test_timetable_oracle.py"),
    ),
    Mutated(
        "manifest",
        ("backupd/policy/manifest.py", "backupd/policy/typed_json.py"),
        ("tests/unit/test_manifest.py", "tests/unit/test_typed_json.py"),
        tuple(
            f"tests/unit/test_manifest.py::test_{name}"  # at each of a manifest's hundred values, or with any of them
            for name in (
                "manifest_survives_being_written_and_read",
                "what_a_later_minor_adds_is_ignored_wherever_it_adds_it",
                "a_signed_manifest_survives_too_and_knows_its_documents_digest",
                "no_value_can_be_changed_unseen",
                "value_of_another_kind_is_refused_even_with_a_proper_digest",
                "missing_key_is_named",
                "no_name_has_a_control_character",
                "no_mutation_of_the_text_passes_or_crashes_the_reader",
            )
        ),
    ),
    Mutated(
        "unpacking",
        ("backupd/archive/members.py", "backupd/archive/unpack_progress.py"),
        ("tests/unit/test_archive_members.py", "tests/unit/test_unpack_progress.py"),
    ),
    Mutated(
        "identity",
        ("backupd/vocabulary/identity.py", "backupd/policy/owner_record.py", "backupd/policy/trust.py"),
        ("tests/unit/test_identity.py", "tests/unit/test_owner_record.py", "tests/unit/test_trust.py"),
    ),
    Mutated(
        "binlog-chain",
        ("backupd/policy/binlog_chain.py",),
        (
            *("tests/unit/test_binlog_chain.py", "tests/unit/test_roll_forward.py", "tests/unit/test_failover.py"),
            "tests/unit/test_random_moment.py",
        ),
    ),
    Mutated(
        "fleet-limits",
        ("backupd/policy/fleet_slots.py", "backupd/policy/fleet_timetable.py", "backupd/policy/fleet_plan.py"),
        ("tests/unit/test_fleet_slots.py", "tests/unit/test_fleet_plan.py", "tests/unit/test_fleet_limits.py"),
        (
            "tests/unit/test_fleet_plan.py::test_ten_thousand_hosts_are_planned_within_ten_seconds",
            "tests/unit/test_fleet_plan.py::test_no_night_overlaps_exceeds_a_slot_or_leaves_its_windows",
        ),
    ),
)
