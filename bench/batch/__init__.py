"""`python -m bench batch`: batches on RaptorMQ, Apache RocketMQ and Apache Kafka, in one run on one machine.

`workload` says what is put on a system and `plan` which of it; `systems` starts the three; `load_run` runs one load:
the Java program of `bench/java` (official clients, settings and measurements of the OpenMessaging Benchmark), that
benchmark itself (`omb`), or `own_load` (our client). `measure` runs the plan and survives failures; `goals`, `table`
and `plot` show the results.
"""
