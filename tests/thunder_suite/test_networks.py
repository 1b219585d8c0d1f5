"""thunder/tests/test_networks.py."""

from thunder.tests.test_networks import *  # noqa: F403
