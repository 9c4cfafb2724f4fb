"""Groups one partition of made-up sales by customer, in memory. Every fourth partition has ten times as many customers."""

import sys

part = int(sys.argv[1])
customers = 110_000 if part % 4 == 3 else 11_000
groups = {}
for sale in range(2 * customers):
    # A record of its own for each sale, about 300 bytes with what Python adds.
    groups.setdefault(sale * 7919 % customers, []).append(b"%08d" % sale + bytes(200))
largest = max(len(sales) for sales in groups.values())
print(f"partition {part}: {len(groups)} customers, at most {largest} sales each")
