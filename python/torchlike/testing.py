"""Helpers for tests."""


def assert_close(actual, expected, **_):
    raise NotImplementedError("assert_close")
