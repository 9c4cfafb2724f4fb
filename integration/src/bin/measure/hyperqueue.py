"""Tasks a second of HyperQueue: one server, one worker, N times `true`. Its client looks every second, so N is to be large."""

import sys
import time

from hyperqueue import Job, LocalCluster

count = int(sys.argv[1])
with LocalCluster() as cluster:
    cluster.start_worker()
    client = cluster.client()
    job = Job()
    for _ in range(count):
        job.program(["true"])
    begun = time.monotonic()
    client.wait_for_jobs([client.submit(job)])
    print(count / (time.monotonic() - begun))
