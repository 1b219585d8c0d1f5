"""thunder/tests/test_grad.py."""

from thunder.tests.test_grad import *  # noqa: F403
