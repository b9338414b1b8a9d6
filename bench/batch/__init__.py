"""Command `python -m bench batch`: batches on RaptorMQ, Apache RocketMQ and Apache Kafka, on one machine.

`workload` defines loads and `plan` the runs. `systems` starts the systems; `load_run` runs one load: the Java
program in `bench/java` (official clients, with the settings and measurements of the OpenMessaging Benchmark), that
benchmark itself (`omb`), or `own_load` (the RaptorMQ client). `measure` runs the plan and continues after failures;
`goals`, `table` and `plot` present the results.
"""
