"""thunder_fuser: a fusion engine for Thunder traces."""

__version__ = "0.1.0"
