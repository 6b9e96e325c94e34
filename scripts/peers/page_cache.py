"""Brings a file into the page cache or drops it, and verifies the result."""

import ctypes
import mmap
import os
import sys


def cached_pages(path):
    """Returns how many pages of the file are in the page cache, from cachestat(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    whole = (ctypes.c_uint64 * 2)(0, 0)
    counts = (ctypes.c_uint64 * 5)()
    with open(path, "rb") as file:
        if libc.syscall(451, file.fileno(), whole, counts, 0) != 0:
            raise OSError(ctypes.get_errno(), "cachestat")
    return counts[0]


def make_cold(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_pages(path) != 0:
        sys.exit(f"{path} stays in the page cache: cold cannot be measured here")


def make_warm(path):
    # The kernel may drop a page in between, so this tries three times.
    for _ in range(3):
        with open(path, "rb") as file:
            while file.read(8 << 20):
                pass
        if cached_pages(path) >= os.path.getsize(path) // mmap.PAGESIZE:
            return
    sys.exit(f"{path} does not stay in the page cache: warm cannot be measured here")
