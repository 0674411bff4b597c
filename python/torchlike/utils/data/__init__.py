"""Data sets, the order to go through them in, and batches."""

from torchlike.utils.data import _utils
from torchlike.utils.data._utils.collate import default_collate, default_convert
from torchlike.utils.data._utils.worker import get_worker_info
from torchlike.utils.data.dataloader import DataLoader, _DatasetKind
from torchlike.utils.data.datapipes.datapipe import (
    IterDataPipe,
    MapDataPipe,
    functional_datapipe,
)
from torchlike.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from torchlike.utils.data.distributed import DistributedSampler
from torchlike.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterDataPipe",
    "IterableDataset",
    "MapDataPipe",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "default_convert",
    "functional_datapipe",
    "get_worker_info",
    "random_split",
]
