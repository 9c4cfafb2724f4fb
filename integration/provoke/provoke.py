"""Fills one kind of memory, slowly enough to be watched. Arguments: which kind, and a directory on a disk."""
import ctypes
import fcntl
import mmap
import os
import resource
import sys
import tempfile
import time

MIB = 1 << 20


def data():
    kept = []
    while True:
        kept.append(bytearray(b"x" * MIB))
        time.sleep(0.008)


def limited():
    """What an administrator's ulimit does: Python says MemoryError before the kernel has to act."""
    resource.setrlimit(resource.RLIMIT_AS, (96 * MIB, 96 * MIB))
    data()


def locked(directory):
    """A mapped file that may not be given back."""
    path = os.path.join(directory, "large")
    with open(path, "wb") as file:
        for _ in range(160):
            file.write(b"x" * MIB)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    fd = os.open(path, os.O_RDONLY)
    start = libc.mmap(None, 160 * MIB, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    for at in range(0, 160 * MIB, MIB):
        if libc.mlock(start + at, MIB) != 0:
            raise OSError(ctypes.get_errno(), "mlock")
        time.sleep(0.03)


def piped(_):
    """Pages of a file that pipes hold on to, so that the kernel cannot take them back; then data of its own."""
    with open("piped", "wb+") as file:
        for _ in range(36):
            file.write(b"x" * MIB)
        file.flush()
        os.fsync(file.fileno())
        kept = []
        for mib in range(36):
            out, into = os.pipe()
            fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, MIB)
            if os.splice(file.fileno(), into, MIB, offset_src=mib * MIB) != MIB:
                raise OSError("a pipe took less")
            kept += [out, into]
            time.sleep(0.03)
        time.sleep(1)
        data()


def mapped(_):
    """Reads a mapped file in no order, beside so much data that the file does not fit; ends when it has read all of it often enough."""
    kept = b"x" * (76 * MIB)
    with tempfile.TemporaryFile(dir=".") as file:
        for _ in range(48):
            file.write(b"y" * MIB)
            file.flush()
            os.fsync(file.fileno())
        pages = mmap.mmap(file.fileno(), 48 * MIB, prot=mmap.PROT_READ)
        count = 48 << 8
        for turn in range(100 * count):
            pages[(turn * 7919 % count) << 12]
    return kept


def sparse():
    """One page read of each two MiB: no memory of its own, and a page table for each."""
    size = 64 << 30
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # and nothing reserved for it
    start = libc.mmap(None, size, mmap.PROT_READ, flags, -1, 0)
    libc.madvise(start, size, 15)  # no huge pages
    for count, at in enumerate(range(0, size, 2 * MIB)):
        ctypes.string_at(start + at, 1)
        if count % 256 == 0:
            time.sleep(0.008)


if sys.argv[1] in ("locked", "piped", "mapped"):
    {"locked": locked, "piped": piped, "mapped": mapped}[sys.argv[1]](sys.argv[2])
else:
    {"data": data, "limited": limited, "sparse": sparse}[sys.argv[1]]()
