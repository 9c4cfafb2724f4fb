"""A stream of counted rows with state and a checkpoint. It ends when a file exists, or after some seconds.

Arguments: directory of the checkpoint, file that ends the job, seconds between batches, longest run in seconds.
Prints one BATCH line for each batch with rows, and RESULT: batches, rows read, rows in the counts of all windows."""
import os
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, window

checkpoint, end, interval, longest = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
spark = SparkSession.builder.appName("streaming").config("spark.sql.shuffle.partitions", "4").getOrCreate()
spark.sparkContext.setLogLevel("INFO" if os.environ.get("STREAMING_LOG") else "WARN")
counts = {}
rows_read = {}


def keep(batch, number):
    for row in batch.collect():
        counts[(row.start, row.bucket)] = row.n


rows = (
    spark.readStream.format("rate")
    .option("rowsPerSecond", "200")
    .option("numPartitions", "4")
    .load()
    .withWatermark("timestamp", "1 minute")
    .groupBy(window("timestamp", "20 seconds"), (col("value") % 50).alias("bucket"))
    .count()
    .selectExpr("window.start AS start", "bucket", "count AS n")
)
query = (
    rows.writeStream.outputMode("update")
    .option("checkpointLocation", checkpoint)
    .trigger(processingTime=f"{interval} seconds")
    .foreachBatch(keep)
    .start()
)
begin = time.time()
while not os.path.exists(end) and time.time() < begin + longest and query.isActive:
    time.sleep(0.5)
    progress = query.lastProgress
    if progress and progress["numInputRows"] and progress["batchId"] not in rows_read:
        rows_read[progress["batchId"]] = progress["numInputRows"]
        state = progress["stateOperators"][0]
        print(
            "BATCH", progress["batchId"], progress["numInputRows"], state["numRowsTotal"], state["memoryUsedBytes"], flush=True
        )
query.stop()
for progress in query.recentProgress:
    if progress["numInputRows"]:
        rows_read[progress["batchId"]] = progress["numInputRows"]
error = query.exception()
print("RESULT", len(rows_read), sum(rows_read.values()), sum(counts.values()), error)
spark.stop()
