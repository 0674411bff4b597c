"""Futures: results, errors of callbacks, and several at once."""

import pickle

import pytest

import torchlike as torch
from torchlike.futures import Future, collect_all, wait_all


def failed(error):
    future = Future()
    future.set_exception(error)
    return future


def test_what_a_callback_raises_is_told_as_a_runtime_error(caplog):
    future = Future()
    future.set_result(1)
    then = future.then(lambda f: f + 1)
    with pytest.raises(
        RuntimeError, match="Got the following error when running the callback: TypeError"
    ):
        then.wait()
    with pytest.raises(RuntimeError, match="callback: ValueError: far\n\nAt:\n"):
        failed(ValueError("far")).then(lambda f: f.value()).wait()
    future.add_done_callback(lambda: None)
    assert "takes 0 positional arguments but 1 was given" in caplog.text and future.wait() == 1
    with pytest.raises(TypeError, match="incompatible function arguments"):
        future.then(3)


def test_futures_are_completed_once():
    future = failed(ValueError("once"))
    for complete in (future.set_result, future.set_exception):
        with pytest.raises(RuntimeError, match="completed Future as complete again"):
            complete(KeyError())
    with pytest.raises(AssertionError, match="not an Exception"):
        Future().set_exception("text")
    with pytest.raises(ValueError, match="Expected devices to have indices, got cpu"):
        Future(devices=["cpu"])
    with pytest.raises(RuntimeError, match=r"Can not pickle torch.futures.Future"):
        pickle.dumps(Future())


def test_collected_futures_wait_for_all_and_raise_the_first_error():
    first, last = failed(ValueError("first")), Future()
    all_ = collect_all([first, last])
    assert not all_.done()
    last.set_result(2)
    for wait in (all_.wait, lambda: wait_all([first, last])):
        with pytest.raises(ValueError, match="first"):
            wait()
    assert wait_all([last, last]) == [2, 2] and wait_all([]) == []
    for wait in (torch.jit.wait, lambda none: wait_all([none])):
        with pytest.raises(RuntimeError, match="Future can't be None"):
            wait(None)
