"""A join with a broadcast table that the heap of a small driver cannot hold."""
from pyspark.sql import SparkSession
from pyspark.sql.functions import broadcast

spark = SparkSession.builder.appName("broadcast").getOrCreate()
table = spark.range(0, 300000, 1, 4).selectExpr("id", "repeat(cast(id % 10 AS string), 500) AS v")
keys = spark.range(0, 600000, 2, 4)
joined = keys.join(broadcast(table), "id")
print("RESULT", joined.selectExpr("count(*) AS n", "sum(length(v)) AS l").collect())
spark.stop()
