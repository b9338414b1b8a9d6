/**
 * One load, whatever the message system: the workloads and the measurements of the OpenMessaging Benchmark (its {@code WorkloadGenerator},
 * {@code LocalWorker} and {@code WorkerStats}) in a program that a script runs once per measurement.
 */
package io.raptormq.bench.load;
