package io.raptormq.interop.load;

/**
 * What one measurement saw.
 *
 * @param messages messages acknowledged
 * @param failures sends that failed
 * @param latencies nanoseconds from call to acknowledgement, one for each call, sorted
 */
record Measured(long messages, long failures, long[] latencies) {
    double percentileMs(double quantile) {
        if (latencies.length == 0) {
            return Double.NaN;
        }
        return latencies[(int) Math.min(latencies.length - 1L, (long) (quantile * latencies.length))] / 1e6;
    }
}
