"""What happens at every step of a training, whatever the trainer."""

import sys
from ctypes import CDLL

import psutil
import pytest
import torch

from evenhand.mitigation.training.callbacks import trim_heap

has_glibc = sys.platform == "linux" and hasattr(CDLL(None), "malloc_trim")


@pytest.mark.skipif(not has_glibc, reason="malloc_trim is of glibc")
def test_freed_memory_goes_back_to_the_system():
    """Nine of ten small tensors are freed: the rest keep the heap as long as it was, until the holes are given back."""
    tensors = [torch.ones(20_000) for _ in range(1000)]  # 80 kB each: malloc asks the system for larger ones apart
    tensors = tensors[::10]
    before = psutil.Process().memory_info().rss
    trim_heap()
    assert before - psutil.Process().memory_info().rss > 50e6  # of 72 MB
    assert all(bool((tensor == 1).all()) for tensor in tensors)
