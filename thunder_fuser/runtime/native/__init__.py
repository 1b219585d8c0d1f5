"""Calls in compiled code: a C++ extension of the running interpreter and torch."""
