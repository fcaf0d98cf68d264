"""Many problems over many GPUs: Dask hands them to a worker process for each GPU.

`tune_over` is the whole: workers, handing out, storing, and what happens when one of them dies.
"""

from autogemm.cluster.coordinator import Listener, label, tune_over
from autogemm.cluster.helped import helped
from autogemm.cluster.messages import Place, Spread
from autogemm.cluster.request import ClusterRequest

__all__ = ["ClusterRequest", "Listener", "Place", "Spread", "helped", "label", "tune_over"]
