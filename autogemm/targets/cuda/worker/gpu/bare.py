"""A GPU with nothing on it but what one candidate needs: for compute-sanitizer and profilers."""

from types import SimpleNamespace

import numpy as np

from autogemm.model.dtypes import Element
from autogemm.model.elements import Stored, first_rows, neutral_array, not_a_number
from autogemm.model.kernel import LaunchPlan
from autogemm.model.problem import Problem
from autogemm.model.signature import OFFSETS

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

    def read_rows(self, address: int, rows: Stored, ld: int) -> None:
        """Copy from a matrix whose rows lie ``ld`` apart; what is between is not touched."""
        for number, row in enumerate(rows):
            source = address + rows.itemsize * number * ld
            self.runtime.memcpy(row.ctypes.data, source, row.nbytes, DEVICE_TO_HOST)


def others_placed(gpu: BareGpu, plan: LaunchPlan, problem: Problem) -> dict[str, int]:
    """Addresses of the workspace, zero once as kernels may expect of their counters, and of a
    family's own arrays and offsets of groups; by name, 0 for no workspace.
    """

    def place(values: Stored) -> int:
        address = gpu.allocate(values.nbytes)
        gpu.write(address, values)
        return address

    workspace = np.zeros(plan.workspace_bytes, np.uint8)
    return {
        "workspace": place(workspace) if workspace.size else 0,
        **{
            extra.argument.name: place(neutral_array(extra, problem.dtype)) for extra in plan.arrays
        },
        **({OFFSETS: place(first_rows(problem))} if plan.grouped else {}),
    }


def placed(gpu: BareGpu, rows: Stored, ld: int, element: Element, *, blank: bool = False) -> int:
    """The address of a matrix on the GPU, NaN between its rows; nothing is written if blank."""
    num_rows, columns = rows.shape
    count = (num_rows - 1) * ld + columns
    address = gpu.allocate(element.size_bytes * count)
    if not blank:
        spread = not_a_number(num_rows * ld, element).reshape(num_rows, ld)
        spread[:, :columns] = rows
        gpu.write(address, spread.reshape(-1)[:count])
    return address
