"""Graphs are captured although something else ends a capture."""

import gc

import pytest

from autogemm.targets.cuda.worker.gpu.gpu import Gpu


class DriverError(Exception):
    pass


class Stream:
    """A stream whose first captures something else ends."""

    def __init__(self, ended: int) -> None:
        self.ended = ended
        self.begun = 0

    def begin_capture(self) -> None:
        self.begun += 1

    def end_capture(self) -> str:
        if self.begun <= self.ended:
            raise DriverError("cudaErrorStreamCaptureInvalidated")
        return "graph"


def gpu_with(stream: Stream) -> Gpu:
    gpu = object.__new__(Gpu)
    gpu.stream, gpu.cuda_errors, gpu.is_capturing = stream, (DriverError,), False  # type: ignore[assignment]
    return gpu


def launches(stream: Stream) -> None:
    assert not gc.isenabled()
    if stream.begun <= stream.ended:
        raise DriverError("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: operation failed")


def test_a_capture_that_something_ends_is_begun_once_more() -> None:
    stream = Stream(ended=1)
    gpu = gpu_with(stream)
    assert gpu.capture(lambda: launches(stream)) == "graph"
    assert stream.begun == 2
    assert gc.isenabled()
    assert not gpu.is_capturing


def test_a_capture_that_is_found_ended_is_begun_once_more() -> None:
    stream = Stream(ended=1)
    assert gpu_with(stream).capture(lambda: None) == "graph"
    assert stream.begun == 2


def test_a_capture_that_ends_twice_is_an_error() -> None:
    stream = Stream(ended=2)
    with pytest.raises(DriverError, match="INVALIDATED"):
        gpu_with(stream).capture(lambda: launches(stream))
    assert stream.begun == 2
    assert gc.isenabled()


def test_other_errors_are_not_tried_again() -> None:
    stream = Stream(ended=0)

    def refuse() -> None:
        raise DriverError("CUDA_ERROR_INVALID_VALUE")

    with pytest.raises(DriverError, match="INVALID_VALUE"):
        gpu_with(stream).capture(refuse)
    assert stream.begun == 1
