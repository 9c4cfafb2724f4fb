"""The skewed group-by of the other programs here. The groups are collected on the Java heap."""


def session(name, partitions):
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.appName(name)
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(partitions))
        .getOrCreate()
    )


def groups(spark, partitions, heavy, factor, rows):
    """One row for each key: key, size of its group, length of one value. Keys in `heavy` have `factor` times the rows."""
    listed = ", ".join(map(str, heavy))
    keys = spark.range(0, partitions, 1, partitions).selectExpr(
        "id AS key", f"explode(sequence(1, IF(id IN ({listed}), {factor * rows}, {rows}))) AS i"
    )
    return (
        keys.selectExpr("key", "repeat(cast(i % 10 AS string), 1000) AS value")
        .groupBy("key")
        .agg({"value": "collect_list"})
        .selectExpr("key", "size(`collect_list(value)`) AS n", "length(`collect_list(value)`[0]) AS l")
    )
