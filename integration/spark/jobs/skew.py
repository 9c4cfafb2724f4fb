"""Group-by with 40 partitions, 3 of which hold eight times the rows of the others.

Prints RESULT with sums that do not depend on retries."""
import sys

from skewed_groups import groups, session

spark = session("skew", 40)
skewed = groups(spark, 40, [5, 17, 29], 8, int(sys.argv[1]))
print("RESULT", skewed.groupBy().sum("key", "n", "l").collect())
spark.stop()
