"""Demo (`make demo`): sends every source line of Python's standard library to a broker, and counts the lines with Spark
and from the files.

There is one module per stage: `source_lines` reads, `broker_process` runs the broker, `sending` produces, `counting`
consumes with Spark, `report` compares. `__main__` runs them in this order.
"""
