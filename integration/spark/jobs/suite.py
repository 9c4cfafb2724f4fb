"""Queries over generated tables in the manner of TPC-H. Prints one RESULT line of JSON.

Argument: thousands of rows of the largest table. Seconds exclude the start of Spark and one warm-up."""
import json
import sys
import time

from pyspark.sql import SparkSession

rows = int(sys.argv[1]) * 1000
spark = SparkSession.builder.appName("suite").config("spark.sql.shuffle.partitions", "8").getOrCreate()
spark.range(0, rows, 1, 8).selectExpr(
    f"id % {rows // 4} AS orderkey",
    f"id * 7919 % {rows // 30} AS partkey",
    f"id * 104729 % {rows // 600} AS suppkey",
    "1 + id * 31 % 50 AS quantity",
    "900 + id * 7907 % 104100 AS price",
    "id * 13 % 11 AS discount",
    "id * 17 % 2526 AS day",
    "cast(id * 5 % 3 AS string) AS flag",
).createOrReplaceTempView("lineitem")
spark.range(0, rows // 4, 1, 8).selectExpr(
    "id AS orderkey", f"id * 6011 % {rows // 40} AS custkey", "id * 19 % 2406 AS orderday", "id % 5 AS priority"
).createOrReplaceTempView("orders")
spark.range(0, rows // 40, 1, 4).selectExpr(
    "id AS custkey", "id % 25 AS nation", "concat('S', id % 5) AS segment"
).createOrReplaceTempView("customer")
spark.range(0, rows // 600, 1, 2).selectExpr("id AS suppkey", "id * 3 % 25 AS nation").createOrReplaceTempView("supplier")
spark.range(0, rows // 30, 1, 4).selectExpr("id AS partkey", "concat('B', id % 25) AS brand").createOrReplaceTempView("part")
queries = {
    "pricing": """SELECT flag, sum(quantity), sum(price * (100 - discount)), count(*) FROM lineitem
        WHERE day <= 2400 GROUP BY flag ORDER BY flag""",
    "shipping": """SELECT l.orderkey, sum(price * (100 - discount)) AS revenue, orderday FROM customer c
        JOIN orders o ON c.custkey = o.custkey JOIN lineitem l ON l.orderkey = o.orderkey
        WHERE segment = 'S1' AND orderday < 1200 AND day > 1200
        GROUP BY l.orderkey, orderday ORDER BY revenue DESC, orderday, l.orderkey LIMIT 10""",
    "volume": """SELECT c.nation, sum(price * (100 - discount)) AS revenue FROM customer c
        JOIN orders o ON c.custkey = o.custkey JOIN lineitem l ON l.orderkey = o.orderkey
        JOIN supplier s ON l.suppkey = s.suppkey AND c.nation = s.nation
        GROUP BY c.nation ORDER BY revenue DESC, c.nation""",
    "forecast": """SELECT sum(price * discount) FROM lineitem
        WHERE day BETWEEN 365 AND 729 AND discount BETWEEN 5 AND 7 AND quantity < 24""",
    "returned": """SELECT c.custkey, sum(price * (100 - discount)) AS revenue FROM customer c
        JOIN orders o ON c.custkey = o.custkey JOIN lineitem l ON l.orderkey = o.orderkey
        WHERE flag = '1' GROUP BY c.custkey ORDER BY revenue DESC, c.custkey LIMIT 20""",
    "priority": """SELECT priority, count(*) FROM orders o WHERE EXISTS
        (SELECT 1 FROM lineitem l WHERE l.orderkey = o.orderkey AND l.day > 2000) GROUP BY priority ORDER BY priority""",
    "brands": """SELECT brand, count(DISTINCT suppkey) AS n FROM lineitem l JOIN part p ON l.partkey = p.partkey
        GROUP BY brand ORDER BY n DESC, brand LIMIT 10""",
    "large": """SELECT o.custkey, l.orderkey, sum(quantity) AS q FROM orders o JOIN lineitem l ON o.orderkey = l.orderkey
        GROUP BY o.custkey, l.orderkey HAVING sum(quantity) > 150 ORDER BY q DESC, l.orderkey LIMIT 20""",
}
spark.sql(queries["forecast"]).collect()
seconds, sums = {}, {}
for name, query in queries.items():
    begin = time.time()
    answer = spark.sql(query).collect()
    seconds[name] = round(time.time() - begin, 3)
    sums[name] = str([tuple(row) for row in answer])
print("RESULT", json.dumps({"seconds": seconds, "total": round(sum(seconds.values()), 3), "sums": sums}))
spark.stop()
