"""Hand-written kernels whose threads hand over data, for the emulator and for NVRTC."""

from handover.bulk_pipeline import BULK_PIPELINE
from handover.cluster_sum import CLUSTER_SUM
from handover.edits import Kernel
from handover.multicast import MULTICAST
from handover.split_k import SPLIT_K
from handover.tiles import TILES

KERNELS: dict[str, Kernel] = {
    "split K": SPLIT_K,
    "cluster": CLUSTER_SUM,
    "bulk copies": BULK_PIPELINE,
    "multicast": MULTICAST,
    "tiles": TILES,
}
