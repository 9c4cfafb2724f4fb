"""Calls of a user on a secured cluster of two nodes.

Argument: a directory that the client and all nodes see.
"""
import json
import os
import sys

import headroom
from headroom import errors

MIB = 1 << 20


def use(mib):
    data = bytearray(mib * MIB)
    data[::4096] = b"x" * len(data[::4096])
    return mib


def refused(**settings):
    """The sentence with which an executor with these settings is refused."""
    try:
        headroom.Executor(addr=os.environ["HEADROOM_ADDR"], **settings).shutdown()
    except errors.HeadroomError as error:
        return str(error)
    return "nothing was refused"


def main(store):
    with headroom.Executor(4, memory="64MiB", store=store, python=sys.executable) as pool:
        many = [pool.submit(abs, -number) for number in range(200)]
        large = pool.submit(use, 150)
        block = os.urandom(3 * MIB)
        turned = pool.submit(lambda data: data[::-1], block)
        assert [future.result(120) for future in many] == list(range(200))
        assert large.result(120) == 150
        assert turned.result(120) == block[::-1]
        attempts = len(large.attempts)
    os.environ["HEADROOM_TOKEN_FILE"] = os.environ["WRONG_TOKEN_FILE"]
    wrong_token = refused()
    del os.environ["HEADROOM_TOKEN_FILE"]
    no_token = refused()
    del os.environ["HEADROOM_CACERT"]
    return {"attempts": attempts, "refused": [wrong_token, no_token, refused()]}


if __name__ == "__main__":
    print("RESULT", json.dumps(main(sys.argv[1])))
