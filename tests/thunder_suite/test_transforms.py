"""thunder/tests/test_transforms.py."""

from thunder.tests.test_transforms import *  # noqa: F403
