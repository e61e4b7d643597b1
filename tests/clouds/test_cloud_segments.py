"""What every target promises of segments, of those in clouds: the suite of `tests.contract.test_target_segments`."""

from tests.contract import test_target_segments

globals().update({name: test for name, test in vars(test_target_segments).items() if name.startswith("test_")})
