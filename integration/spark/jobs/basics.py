"""Pi, a word count with a shuffle, and SQL with a join. Prints one RESULT line each."""
from operator import add

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("basics").getOrCreate()
context = spark.sparkContext


def inside(number):
    # A fixed lattice instead of random points: the same result in every run.
    x, y = (number % 300 + 0.5) / 300, (number // 300 + 0.5) / 300
    return 1 if x * x + y * y <= 1 else 0


print("RESULT pi", context.parallelize(range(90000), 6).map(inside).reduce(add))
lines = context.parallelize(["to be or not to be", "that is the question"] * 500, 4)
counts = lines.flatMap(str.split).map(lambda word: (word, 1)).reduceByKey(add, 4)
print("RESULT words", sorted(counts.collect()))
left = spark.range(0, 20000, 1, 4).selectExpr("id", "id % 11 AS key")
right = spark.range(0, 11).selectExpr("id AS key", "concat('k', id) AS name")
joined = left.join(right.hint("shuffle_hash"), "key").groupBy("name").count().orderBy("name")
print("RESULT sql", [tuple(row) for row in joined.collect()])
spark.stop()
