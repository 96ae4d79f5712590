"""A stand-in for Triton's ``triton_python_backend_utils``, as strict as the real one where we could be wrong."""

import threading

import numpy as np

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


class Tensor:
    def __init__(self, name, array):
        assert isinstance(array, np.ndarray)
        assert array.dtype.name in ("int32", "float32", "object"), (name, array.dtype)
        self._name, self._array = name, array

    def name(self):
        return self._name

    def as_numpy(self):
        return self._array


class InputTensor(Tensor):
    def __init__(self, name, array):
        self._name, self._array = name, array


class TritonError:
    INVALID_ARG, UNAVAILABLE, CANCELLED, INTERNAL = "INVALID_ARG", "UNAVAILABLE", "CANCELLED", "INTERNAL"

    def __init__(self, message, code=INTERNAL):
        self.message_, self.code_ = message, code

    def message(self):
        return self.message_

    def code(self):
        return self.code_


class InferenceResponse:
    def __init__(self, output_tensors=(), error=None):
        self.error = error
        self.tensors = {tensor.name(): tensor.as_numpy() for tensor in output_tensors}


class ResponseSender:
    """Records what is sent; ``leave`` is the client going away; ``on_send`` is called at each send."""

    def __init__(self):
        self.responses = []
        self.flags = []
        self.final = threading.Event()
        self.arrived = threading.Semaphore(0)
        self.fails = False
        self._left = False

    def leave(self):
        self._left = True

    def is_cancelled(self):
        assert not self.final.is_set(), "asked after the final response"
        return self._left

    def send(self, response, flags=0):
        assert not self.final.is_set(), "sent after the final response"
        if self.fails:
            raise RuntimeError("the parent process is gone")
        self.responses.append(response)
        self.flags.append(flags)
        if flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL:
            self.final.set()
        self.arrived.release()


class InferenceRequest:
    def __init__(self, **tensors):
        self.sender = ResponseSender()
        self._inputs = [InputTensor(name, array) for name, array in tensors.items()]

    def inputs(self):
        return self._inputs

    def get_response_sender(self):
        return self.sender


def request_of(text, *, stream=True):
    """A request with a prompt."""
    return InferenceRequest(
        text_input=np.array([text.encode()], dtype=object), stream=np.array([stream], dtype=np.bool_)
    )
