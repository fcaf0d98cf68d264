"""A GPU with nothing on it but what one candidate needs: for compute-sanitizer and profilers."""

from types import SimpleNamespace

import numpy as np

from autogemm.model.dtypes import Element
from autogemm.model.elements import Stored, arrays_of_groups, neutral_array, not_a_number
from autogemm.model.kernel import LaunchPlan
from autogemm.model.problem import Problem

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
# Without a gap one allocation may begin where another ends, and a step across is not seen.
GUARD_BYTES = 2**16


class BareGpu:
    """A GPU with all that launching needs, without helpers, memory pool and stream of its own."""

    def __init__(self, device_index: int) -> None:
        from cupy.cuda import driver, runtime

        self.driver, self.runtime = driver, runtime
        self.cuda_errors = (runtime.CUDARuntimeError, driver.CUDADriverError)
        self.stream = SimpleNamespace(ptr=0)
        runtime.setDevice(device_index)
        runtime.memGetInfo()  # makes the context
        self._guards = [int(runtime.malloc(GUARD_BYTES))]

    def allocate(self, num_bytes: int) -> int:
        """The address of exactly so many bytes, with a guard behind them."""
        address = int(self.runtime.malloc(num_bytes))
        self._guards.append(int(self.runtime.malloc(GUARD_BYTES)))
        return address

    def free_guards(self) -> None:
        """Free the memory around each allocation."""
        for guard in self._guards:
            self.runtime.free(guard)

    def write(self, address: int, values: Stored) -> None:
        """Copy to the GPU."""
        self.runtime.memcpy(address, values.ctypes.data, values.nbytes, HOST_TO_DEVICE)

    def place(self, values: Stored) -> int:
        """The address of a new allocation of exactly the size of the array, and its content."""
        address = self.allocate(values.nbytes)
        self.write(address, values)
        return address

    def place_workspace(self, plan: LaunchPlan) -> int:
        """The address of a workspace, zero once as kernels may expect of their counters; or 0."""
        size = plan.workspace_bytes
        return self.place(np.zeros(size, np.uint8)) if size else 0

    def read(self, address: int, into: Stored) -> None:
        """Copy from the GPU."""
        self.runtime.memcpy(into.ctypes.data, address, into.nbytes, DEVICE_TO_HOST)


def others_placed(gpu: BareGpu, plan: LaunchPlan, problem: Problem) -> dict[str, int]:
    """Addresses of the workspace, of a family's own arrays and of offsets of groups, by name; 0 for
    no workspace.
    """
    places = {"workspace": gpu.place_workspace(plan)}
    for extra in plan.arrays:
        places[extra.argument.name] = gpu.place(neutral_array(extra, problem.dtype))
    for name, rows in arrays_of_groups(problem).items():
        places[name] = gpu.place(rows)
    return places


def placed(gpu: BareGpu, rows: Stored, ld: int, element: Element) -> int:
    """The address of a matrix on the GPU, NaN between its rows."""
    num_rows, columns = rows.shape
    spread = not_a_number(num_rows * ld, element).reshape(num_rows, ld)
    spread[:, :columns] = rows
    return gpu.place(spread.reshape(-1)[: (num_rows - 1) * ld + columns])
