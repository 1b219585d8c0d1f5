"""The table of knobs: environment, overrides, and what is refused."""

from __future__ import annotations

import threading

import pytest

from thunder_fuser import config
from thunder_fuser.errors import InputError


def test_default_environment_override(monkeypatch):
    monkeypatch.delenv("THUNDER_FUSER_FALLBACK", raising=False)
    assert config.get("fallback") == "torch"
    monkeypatch.setenv("THUNDER_FUSER_FALLBACK", "error")
    assert config.get("fallback") == "error"
    with config.override(fallback="torch", host=True):
        assert config.get("fallback") == "torch" and config.get("host") is True
        with config.override(fallback="error"):
            assert config.get("fallback") == "error" and config.get("host") is True
        assert config.get("fallback") == "torch"
    assert config.get("fallback") == "error"


@pytest.mark.parametrize("text, value", [("1", True), ("true", True), ("ON", True), ("0", False), ("", False), ("no", False)])
def test_flags_in_the_environment(monkeypatch, text, value):
    monkeypatch.setenv("THUNDER_FUSER_HOST", text)
    assert config.get("host") is value


@pytest.mark.parametrize(
    "name, text, expected",
    [("host", "maybe", "0 or 1"), ("fallback", "eager", "'torch' or 'error'"), ("cache_limit_mb", "big", "an integer")],
)
def test_a_value_that_does_not_parse(monkeypatch, name, text, expected):
    monkeypatch.setenv(f"THUNDER_FUSER_{name.upper()}", text)
    with pytest.raises(InputError, match=f"THUNDER_FUSER_{name.upper()} is '{text}', expected {expected}"):
        config.get(name)
    with pytest.raises(InputError, match=f"'{name}' was set to '{text}', expected {expected}"), config.override(**{name: text}):
        pass


def test_unknown_names_list_the_good_ones():
    with pytest.raises(InputError, match="'hosts' is not a configuration option; the options are cache_dir, .*host"):
        config.get("hosts")
    with pytest.raises(InputError, match="'hosts' is not"), config.override(hosts=True):
        pass


def test_an_override_holds_in_its_thread_only():
    seen = []
    with config.override(max_registers=32):
        thread = threading.Thread(target=lambda: seen.append(config.get("max_registers")))
        thread.start()
        thread.join()
        assert config.get("max_registers") == 32
    assert seen == [None]


def test_an_override_ends_with_an_error(monkeypatch):
    monkeypatch.delenv("THUNDER_FUSER_CHECK", raising=False)
    with pytest.raises(RuntimeError), config.override(check=True):
        raise RuntimeError
    assert config.get("check") is False


def test_every_default_is_a_value_that_the_environment_could_give():
    for knob in config.KNOBS.values():
        with config.override(**{knob.name: knob.default}):
            assert config.get(knob.name) == knob.default
        assert knob.env in config.table() and knob.help in config.table()
