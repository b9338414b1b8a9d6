"""`make demo`: every source line of Python's standard library through a broker and back out of Spark, counted twice.

One file per stage: `source_lines` reads, `broker_process` serves, `sending` produces, `counting` consumes with Spark,
`report` compares; `__main__` runs them in this order.
"""
