"""What every target promises, of those in clouds: the whole suite of `tests.contract.test_targets` on their servers."""

from tests.contract import test_targets

globals().update({name: test for name, test in vars(test_targets).items() if name.startswith("test_")})
